//! The small tools that models reach for.

use crate::support::sh;
use crate::{found, needs, says};

/// One test for a tool: what it needs, what it does, what it must say.
macro_rules! tool {
    ($name:ident, $tools:expr, $script:expr, $says:expr) => {
        #[test]
        fn $name() {
            needs!(Userns);
            if found("shell", $tools) {
                says(&sh($script), $says);
            }
        }
    };
}

tool!(jq_reads_json, &["jq"], r#"echo '{"a": [1, 2]}' | jq -c '.a | map(. * 2)'"#, "[2,4]\n");

tool!(
    rg_searches_with_threads,
    &["rg"],
    "mkdir d && for n in 1 2 3; do echo needle >d/$n; done; rg --sort path -c needle d",
    "d/1:1\nd/2:1\nd/3:1\n"
);

tool!(
    tar_packs_and_unpacks_what_claims_another_owner,
    &["tar", "gzip"],
    "mkdir d && echo x >d/f && chmod 640 d/f && tar --owner=1234 -czf d.tgz d && rm -r d && \
     tar -xpzf d.tgz && stat -c '%a %U' d/f",
    "640 sandbox\n"
);

tool!(
    xz_and_gzip_give_back_what_they_took,
    &["xz", "gzip"],
    "seq 100000 >n && xz -T2 -k n && xz -dc n.xz | cmp - n && gzip -k n && gzip -dc n.gz | cmp - n && echo same",
    "same\n"
);

tool!(
    awk_sed_sort_and_xargs_work_together,
    &["awk", "sed", "sort", "xargs"],
    "seq 9 | xargs -P3 -n1 echo | sort -rn | sed -n 1,3p | awk '{ sum += $1 } END { print sum }'",
    "24\n"
);
