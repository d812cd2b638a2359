//! numpy, pandas and matplotlib in a virtual environment, which is found by being first in `PATH`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::support::{Ran, exec_with};
use crate::{lacks, needs, says};

/// The virtual environment, or why there is none is said.
fn venv() -> Option<PathBuf> {
    let venv = std::env::var_os("SANDBOX_TEST_VENV").map(PathBuf::from);
    if venv.is_none() {
        lacks("science");
    }
    venv
}

fn python(venv: &Path, program: &str) -> Ran {
    let mut path = OsString::from(venv.join("bin"));
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into()));
    let variables = [("PATH", Path::new(&path))];
    exec_with("python", &variables, &["--timeout", "120"], &["python3", "-c", program])
}

#[test]
fn the_virtual_environment_is_the_one_that_is_used() {
    needs!(Userns);
    let Some(venv) = venv() else { return };
    let ran = python(&venv, "import sys; print(sys.prefix, sys.prefix != sys.base_prefix)");
    says(&ran, &format!("{} True\n", venv.display()));
}

#[test]
fn numpy_solves_with_its_threads() {
    needs!(Userns);
    let Some(venv) = venv() else { return };
    let ran = python(
        &venv,
        "
import numpy
a = numpy.eye(400) * 2 + numpy.ones((400, 400))
x = numpy.linalg.solve(a, numpy.ones(400))
print(round(float(x.sum()), 6), int(numpy.fft.fft(numpy.arange(8))[0].real))
m = numpy.memmap('m', dtype='int32', mode='w+', shape=(1000,)); m[:] = 7; m.flush()
print(int(numpy.fromfile('m', dtype='int32').sum()))
",
    );
    says(&ran, "0.995025 28\n7000\n");
}

#[test]
fn pandas_groups_what_it_has_written_and_read() {
    needs!(Userns);
    let Some(venv) = venv() else { return };
    let ran = python(
        &venv,
        "
import pandas
pandas.DataFrame({'k': list('abab'), 'n': [1, 2, 3, 4]}).to_csv('t.csv', index=False)
print(pandas.read_csv('t.csv').groupby('k').n.sum().to_dict())
print(pandas.Timestamp('2024-02-28', tz='Europe/Berlin') + pandas.Timedelta(days=1))
",
    );
    says(&ran, "{'a': 4, 'b': 6}\n2024-02-29 00:00:00+01:00\n");
}

#[test]
fn matplotlib_draws_a_picture() {
    needs!(Userns);
    let Some(venv) = venv() else { return };
    let ran = python(
        &venv,
        "
import matplotlib.pyplot as plot, struct
plot.figure(figsize=(4, 3), dpi=100); plot.plot([1, 4, 9]); plot.title('squares'); plot.savefig('a.png')
head = open('a.png', 'rb').read(24)
print(head[1:4].decode(), *struct.unpack('>II', head[16:]))
",
    );
    // Fontconfig's settings are in /etc and not shown; fonts are found without them.
    let said = ran
        .stderr
        .lines()
        .find(|line| !line.starts_with("Fontconfig error: Cannot load default config"));
    assert_eq!((ran.stdout.as_str(), said, ran.code), ("PNG 400 300\n", None, 0));
}
