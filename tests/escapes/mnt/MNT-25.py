# Secrets and homes of the host.
import glob
from call import *

HOMES = "/root", "/home/*", "/var/lib/*", "~"
SECRETS = (
    ".ssh/*", ".aws/*", ".config/gcloud", ".netrc", ".git-credentials", ".claude*", ".codex", ".kube",
    ".gnupg", ".docker/config.json", ".npmrc", ".pypirc", ".bash_history",
)
places = [f"{home}/{secret}" for home in HOMES for secret in SECRETS]
places += [
    "/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/etc/ssh/*", "/etc/nix/*", "/etc/machine-id",
    "/etc/fstab", "/root", "/home", "/home/*", "/run", "/run/secrets", "/run/user/*", "/var",
    "/mnt", "/media", "/boot", "/opt", "/srv", "/sys", "/tmp/.*", "/tmp/*", "/nix/var",
]
for place in places:
    for found in glob.glob(os.path.expanduser(place)):
        # Not what was made only to hold a mount of the environment.
        if os.lstat(found).st_dev != os.lstat("/").st_dev:
            show(found, "is there")
# Java keeps its settings there, where there is one.
show("etc", " ".join(sorted(name for name in os.listdir("/etc") if not name.startswith("java"))))
