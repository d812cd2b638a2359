//! Hostile and honest trees.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use nix::sys::stat::Mode;
use tempfile::TempDir;

use super::*;

/// A directory as a sandbox hands it out.
fn gallery() -> (TempDir, Gallery) {
    let directory = tempfile::tempdir().expect("directory");
    let (gallery, theirs) = Gallery::new().expect("gallery");
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let opened = nix::fcntl::open(directory.path(), flags, Mode::empty()).expect("open");
    kernel::send_message(theirs.as_fd(), b"workspace", &[opened.as_fd()]).expect("send");
    (directory, gallery)
}

/// A picture by its two ends, `length` bytes long.
fn png(length: usize) -> Vec<u8> {
    let (start, end) = (b"\x89PNG\r\n\x1a\n", b"IEND\xae\x42\x60\x82");
    let mut bytes = start.to_vec();
    bytes.resize(length.max(16) - end.len(), 7);
    bytes.extend_from_slice(end);
    bytes
}

fn look(gallery: &mut Gallery) -> Files {
    let mut files = Files::default();
    gallery.look(&mut files);
    files
}

fn names(files: &Files) -> Vec<&str> {
    files.images.iter().map(|image| image.name.as_str()).collect()
}

#[test]
fn every_kind_is_known_by_its_bytes_and_not_by_its_name() {
    let (directory, mut gallery) = gallery();
    let webp = b"RIFF\x08\0\0\0WEBPVP8 ".to_vec();
    for (at, (name, bytes, _)) in [
        ("a.png", png(100), "image/png"),
        ("b.JPG", b"\xff\xd8\xff\xe0 \xff\xd9".to_vec(), "image/jpeg"),
        ("c.jpeg", b"GIF89a;".to_vec(), "image/gif"),
        ("d.webp", webp, "image/webp"),
    ]
    .iter()
    .enumerate()
    {
        fs::write(directory.path().join(name), bytes).expect("write");
        touch(&directory.path().join(name), at as u64);
    }
    fs::write(directory.path().join("text.png"), "not a picture").expect("write");
    fs::write(directory.path().join("empty.png"), "").expect("write");
    fs::write(directory.path().join("picture.txt"), png(100)).expect("write");
    fs::write(directory.path().join("x.svg"), "<svg/>").expect("write");
    let files = look(&mut gallery);
    assert_eq!(names(&files), ["a.png", "b.JPG", "c.jpeg", "d.webp"]);
    let kinds: Vec<&str> = files.images.iter().map(|image| image.mime).collect();
    assert_eq!(kinds, ["image/png", "image/jpeg", "image/gif", "image/webp"]);
    assert_eq!(left_out(&files), [("x.svg", "not PNG, JPEG, GIF or WebP")]);
}

fn left_out(files: &Files) -> Vec<(&str, &str)> {
    files.left_out.iter().map(|it| (it.name.as_str(), it.why)).collect()
}

fn touch(path: &Path, second: u64) {
    let file = fs::File::options().append(true).open(path).expect("open");
    file.set_modified(std::time::UNIX_EPOCH + Duration::from_secs(second)).expect("touch");
}

#[test]
fn only_what_was_made_or_changed_since_comes_again() {
    let (directory, mut gallery) = gallery();
    let place = |name: &str| directory.path().join(name);
    fs::write(place("a.png"), png(100)).expect("write");
    assert_eq!(names(&look(&mut gallery)), ["a.png"]);
    assert_eq!(names(&look(&mut gallery)), [""; 0]);
    fs::write(place("b.png"), png(100)).expect("write");
    assert_eq!(names(&look(&mut gallery)), ["b.png"]);
    fs::write(place("a.png"), png(200)).expect("write");
    assert_eq!(names(&look(&mut gallery)), ["a.png"]);
    // Another file in the same place, as programs save: same size, same time.
    fs::write(place("new"), png(200)).expect("write");
    let time = fs::metadata(place("a.png")).expect("metadata").modified().expect("time");
    fs::File::options().append(true).open(place("new")).expect("open").set_modified(time).unwrap();
    fs::rename(place("new"), place("a.png")).expect("rename");
    assert_eq!(names(&look(&mut gallery)), ["a.png"]);
    fs::remove_file(place("a.png")).expect("remove");
    assert_eq!(names(&look(&mut gallery)), [""; 0]);
}

#[test]
fn no_link_leads_out_and_nothing_is_waited_for() {
    let (directory, mut gallery) = gallery();
    let outside = tempfile::tempdir().expect("outside");
    fs::write(outside.path().join("secret.png"), png(100)).expect("write");
    let place = |name: &str| directory.path().join(name);
    symlink(outside.path().join("secret.png"), place("file.png")).expect("link");
    symlink(outside.path(), place("directory")).expect("link");
    symlink(outside.path(), place("directory.png")).expect("link");
    symlink("/proc/self/root", place("magic")).expect("link");
    symlink(".", place("loop")).expect("link");
    nix::unistd::mkfifo(&place("fifo.png"), Mode::S_IRWXU).expect("fifo");
    let _listener = UnixListener::bind(place("socket.png")).expect("socket");
    fs::create_dir(place("x.png")).expect("directory");
    fs::create_dir(place("closed")).expect("directory");
    fs::write(place("closed/a.png"), png(100)).expect("write");
    fs::set_permissions(place("closed"), fs::Permissions::from_mode(0o000)).expect("close");
    let started = Instant::now();
    let files = look(&mut gallery);
    assert!(started.elapsed() < Duration::from_secs(5));
    // Root may walk where nobody else may.
    let expected: &[&str] = if nix::unistd::geteuid().is_root() { &["closed/a.png"] } else { &[] };
    assert_eq!((names(&files), files.left_out.len()), (expected.to_vec(), 0));
    fs::set_permissions(place("closed"), fs::Permissions::from_mode(0o700)).expect("open");
}

#[test]
fn what_is_opened_counts_and_not_what_was_seen() {
    let (directory, _) = gallery();
    let root: OwnedFd = fs::File::open(directory.path()).expect("open").into();
    for at in ["/etc/passwd", "../x.png", "a/../../x.png"] {
        assert!(open_below(&root, Path::new(at), OFlag::empty()).is_err(), "{at}");
    }
    // Swapped between the look and the opening.
    nix::unistd::mkfifo(&directory.path().join("a.png"), Mode::S_IRWXU).expect("fifo");
    symlink("/etc", directory.path().join("d")).expect("link");
    let mut files = Files::default();
    for path in ["a.png", "d/passwd", "gone.png"] {
        take(&root, Path::new(path), &mut files);
    }
    assert_eq!(files, Files::default());
}

#[test]
fn number_and_size_are_bounded_and_what_is_left_out_is_told() {
    let (directory, mut gallery) = gallery();
    let mebibyte = 1 << 20;
    let sizes = [mebibyte + 1, mebibyte, mebibyte, mebibyte, 100, 50];
    for (at, size) in sizes.into_iter().enumerate() {
        let path = directory.path().join(format!("{at}.png"));
        fs::write(&path, png(size)).expect("write");
        touch(&path, at as u64);
    }
    fs::write(directory.path().join("cut.png"), &png(100)[..50]).expect("write");
    let files = look(&mut gallery);
    assert_eq!(names(&files), ["1.png", "2.png", "3.png"]);
    let left: Vec<(&str, u64, &str)> =
        files.left_out.iter().map(|it| (it.name.as_str(), it.bytes, it.why)).collect();
    let full = "more than 3 MiB of images";
    assert_eq!(
        left,
        [
            ("0.png", mebibyte as u64 + 1, "larger than 1 MiB"),
            ("4.png", 100, full),
            ("5.png", 50, full),
            ("cut.png", 50, "incomplete"),
        ]
    );
}

#[test]
fn a_huge_file_and_many_of_them_cost_little() {
    let (directory, mut gallery) = gallery();
    let huge = directory.path().join("huge.png");
    fs::write(&huge, png(100)).expect("write");
    fs::File::options().append(true).open(&huge).expect("open").set_len(1 << 40).expect("grow");
    for at in 0..1000 {
        fs::hard_link(&huge, directory.path().join(format!("{at}.png"))).expect("link");
    }
    let started = Instant::now();
    let files = look(&mut gallery);
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    assert_eq!((files.images.len(), files.left_out.len()), (0, 1001));
    assert!(files.left_out.iter().all(|left_out| left_out.bytes == 1 << 40));
    let why: Vec<&str> = files.left_out.iter().map(|left_out| left_out.why).collect();
    assert_eq!(why, [vec!["larger than 1 MiB"; 32], vec!["after 32 others"; 969]].concat());
}

#[test]
fn the_walk_ends_whatever_the_tree_and_what_it_leaves_out_is_told() {
    let (directory, mut gallery) = gallery();
    for place in ["1/2", "1/2/3", ".hidden", "many"] {
        fs::create_dir_all(directory.path().join(place)).expect("directory");
    }
    for place in ["1/2/a.png", "1/2/3/too-deep.png", ".hidden/b.png", ".c.png"] {
        fs::write(directory.path().join(place), png(100)).expect("write");
    }
    let files = look(&mut gallery);
    assert_eq!(names(&files), ["1/2/a.png"]);
    assert_eq!(left_out(&files), [("1/2/3/too-deep.png", "deeper than 3 directories")]);
    assert_eq!(files.looked_at, None);
    // Told once, as every picture.
    assert_eq!(look(&mut gallery), Files::default());
    for at in 0..5000 {
        fs::write(directory.path().join(format!("many/{at}.txt")), "").expect("write");
    }
    fs::write(directory.path().join("top.png"), png(100)).expect("write");
    // What lies higher is looked at first.
    let files = look(&mut gallery);
    assert_eq!((names(&files), files.looked_at), (vec!["top.png"], Some(2000)));
}

#[test]
fn a_deep_tree_costs_little_and_fills_no_other_picture_s_place() {
    let (directory, mut gallery) = gallery();
    let mut place = directory.path().to_owned();
    for at in 0..1000 {
        place.push("d");
        fs::create_dir(&place).expect("directory");
        if (3..43).contains(&at) {
            fs::write(place.join("deep.png"), png(100)).expect("write");
            touch(&place.join("deep.png"), at);
        }
    }
    fs::write(directory.path().join("near.png"), png(100)).expect("write");
    fs::write(directory.path().join("cut.png"), &png(100)[..50]).expect("write");
    let started = Instant::now();
    let files = look(&mut gallery);
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    assert_eq!((names(&files), files.left_out.len()), (vec!["near.png"], 41));
    // Though it is newer than all of them.
    assert_eq!(left_out(&files)[0], ("cut.png", "incomplete"));
}

#[test]
fn names_may_be_anything() {
    let (directory, mut gallery) = gallery();
    let odd = std::ffi::OsStr::from_bytes(b"a\n\x1b[2J\xff.png");
    fs::write(directory.path().join(odd), png(100)).expect("write");
    assert_eq!(names(&look(&mut gallery)), ["a\n\x1b[2J\u{fffd}.png"]);
}

#[test]
fn a_sandbox_that_hands_out_nothing_has_no_pictures() {
    let (mut gallery, theirs) = Gallery::new().expect("gallery");
    drop(theirs);
    assert_eq!(look(&mut gallery), Files::default());
    assert_eq!(look(&mut gallery), Files::default());
}
