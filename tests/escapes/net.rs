//! Group 7: sockets.

use std::any::Any;
use std::cell::RefCell;
use std::fs::{self, File};
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};
use std::path::Path;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};

use crate::needs;

thread_local! {
    /// What the host holds open while a payload runs: one test, one thread.
    static HELD: RefCell<Vec<Box<dyn Any>>> = RefCell::default();
}

fn hold(what: impl Any) {
    HELD.with_borrow_mut(|held| held.push(Box::new(what)));
}

fn held<T: 'static>(look: impl FnMut(&T) -> String) -> String {
    HELD.with_borrow(|held| held.iter().filter_map(|it| it.downcast_ref::<T>()).map(look).collect())
}

const OUTSIDE: &str = "on the host's network it would speak to strangers";

entries! {
    net_01_socket_families: "NET-01" "net/NET-01.py" =>
        "\
        AF_UNIX STREAM DGRAM RAW SEQPACKET: ok\n\
        AF_UNIX RDM DCCP PACKET: ESOCKTNOSUPPORT\n\
        AF_INET STREAM DGRAM: ok\n\
        AF_INET RAW: EPERM\n\
        AF_INET RDM SEQPACKET DCCP PACKET: EPROTONOSUPPORT\n\
        AF_INET6 STREAM DGRAM: ok\n\
        AF_INET6 RAW: EPERM\n\
        AF_INET6 RDM SEQPACKET DCCP PACKET: EPROTONOSUPPORT\n\
        AF_NETLINK STREAM RDM SEQPACKET DCCP PACKET: ESOCKTNOSUPPORT\n\
        AF_NETLINK DGRAM RAW: ok\n\
        every other family: EAFNOSUPPORT\n\
        pairs of every family but AF_UNIX: EAFNOSUPPORT\n\
        ";
    net_02_vsock_and_wsl: "NET-02" "net/NET-02.py" =>
        "\
        AF_VSOCK STREAM: EAFNOSUPPORT\n\
        AF_VSOCK DGRAM: EAFNOSUPPORT\n\
        AF_VSOCK SEQPACKET: EAFNOSUPPORT\n\
        /dev/vsock: ENOENT\n\
        /dev/vhost-vsock: ENOENT\n\
        /run/WSL: ENOENT\n\
        /init: ENOENT\n\
        /mnt/c: ENOENT\n\
        WSL_INTEROP: unset\n\
        cmd.exe: {ENOEXEC|ENOENT}\n\
        ",
        variables: &[("WSL_INTEROP", "/run/WSL/1_interop")],
        varies: "where WSL has an interpreter for it, that is not there";
    net_04_netlink: "NET-04" "net/NET-04.py" =>
        "\
        ROUTE: ok\n\
        USERSOCK: EAFNOSUPPORT\n\
        SOCK_DIAG: EAFNOSUPPORT\n\
        XFRM: EAFNOSUPPORT\n\
        SELINUX: EAFNOSUPPORT\n\
        AUDIT: EAFNOSUPPORT\n\
        FIB_LOOKUP: EAFNOSUPPORT\n\
        NETFILTER: EAFNOSUPPORT\n\
        KOBJECT_UEVENT: EAFNOSUPPORT\n\
        GENERIC: EAFNOSUPPORT\n\
        CRYPTO: EAFNOSUPPORT\n\
        interfaces: lo\n\
        localhost: loopback\n\
        ";
    net_06_out: "NET-06" "net/NET-06.py" =>
        "\
        AF_INET SOCK_STREAM connect: ENETUNREACH\n\
        AF_INET SOCK_DGRAM connect: ENETUNREACH\n\
        AF_INET sendto: ENETUNREACH\n\
        AF_INET6 SOCK_STREAM connect: ENETUNREACH\n\
        AF_INET6 SOCK_DGRAM connect: ENETUNREACH\n\
        AF_INET6 sendto: ENETUNREACH\n\
        example.com: no such name\n\
        1.1.1.1.in-addr.arpa: no such name\n\
        sandbox.invalid: no such name\n\
        in all: at once\n\
        ", only_in_a_vm: OUTSIDE;
    net_06_out_with_bash: "NET-06" "net/NET-06-bash.sh" =>
        "\
        tcp/1.1.1.1/443: Network is unreachable\n\
        udp/1.1.1.1/443: Network is unreachable\n\
        tcp/example.com/80: Invalid argument\n\
        udp/example.com/80: Invalid argument\n\
        tcp/127.0.0.1/22: Connection refused\n\
        ", only_in_a_vm: OUTSIDE;
    net_07_listeners_of_the_host: "NET-07" "net/NET-07.py" =>
        "\
        127.0.0.1: ECONNREFUSED\n\
        ::1: ECONNREFUSED\n\
        0.0.0.0: ECONNREFUSED\n\
        host: nobody came\n\
        ",
        before: Some(listen_on_loopback), after: Some(nobody_came);
    net_08_own_loopback: "NET-08" "net/NET-08.py" =>
        "\
        TCP 127.0.0.1: hello\n\
        TCP 127.8.8.8: hello\n\
        TCP ::1: hello\n\
        TCP localhost: hello\n\
        TCP 0.0.0.0: hello\n\
        TCP ::: hello\n\
        UDP 127.0.0.1: hello\n\
        UDP ::1: hello\n\
        UNIX workspace/socket: hello\n\
        UNIX tmp/socket: hello\n\
        UNIX abstract: hello\n\
        ";
    net_10_the_desktop: "NET-10" "net/NET-10.py" =>
        "\
        variables: none\n\
        10 files: ENOENT\n\
        abstract, the test's: ECONNREFUSED\n\
        abstract, X: ECONNREFUSED\n\
        abstract, D-Bus: ECONNREFUSED\n\
        host: nobody came\n\
        ",
        variables: DESKTOP, before: Some(listen_abstract), after: Some(nobody_came);
    net_11_daemons_that_start_programs: "NET-11" "net/NET-11.py" =>
        "\
        all others: ENOENT\n\
        socket files: 0\n\
        ";
    net_12_socket_file_in_the_project: "NET-12" "net/NET-12.py" =>
        "\
        connect SOCK_STREAM: {ok|EACCES}\n\
        connect SOCK_DGRAM: {ok|EACCES}\n\
        pair: x\n\
        wall landlock: {*}\n\
        ",
        varies: "Landlock refuses socket files from version 9 (Linux 7.1) on; see the next test",
        reported: &["landlock"], before: Some(listen_in_project),
        note: "no mount and no filter can refuse it; the result says so, and `strict` has no sockets";
    net_12_socket_file_under_strict: "NET-12" "net/NET-12.py" =>
        "\
        socket SOCK_STREAM: EAFNOSUPPORT\n\
        socket SOCK_DGRAM: EAFNOSUPPORT\n\
        pair: x\n\
        host: nobody came\n\
        ",
        settings: "profile = \"strict\"\n",
        before: Some(listen_in_project), after: Some(nobody_came);
    net_13_passing_descriptors: "NET-13" "net/NET-13.py" =>
        "\
        sendmsg over 0: ENOTSOCK\n\
        recvmsg from 0: ENOTSOCK\n\
        sendmsg over 1: ENOTSOCK\n\
        recvmsg from 1: ENOTSOCK\n\
        sendmsg over 2: ENOTSOCK\n\
        recvmsg from 2: ENOTSOCK\n\
        among themselves: ok\n\
        ";
    net_14_inherited_sockets: "NET-14" "net/NET-14.py" =>
        "\
        0: pipe\n\
        1: pipe\n\
        2: pipe\n\
        of pid 1: Permission denied\n\
        TCP sockets: 0\n\
        UNIX sockets: 0\n\
        ",
        before: Some(leave_sockets_open);
    net_15_modules_by_protocol: "NET-15" "net/NET-15.py" =>
        "\
        AX25, IPX, ATALK, X25, RDS, PPPOX, LLC, IB, CAN, TIPC, BLUETOOTH, RXRPC, PHONET, IEEE802154, CAIF, ALG, NFC, VSOCK, KCM, QIPCRTR, SMC, XDP, MCTP, PACKET: EAFNOSUPPORT\n\
        DCCP, SCTP, SCTP 6, UDPLITE, MPTCP, SMC over IP, L2TP: EPROTONOSUPPORT\n\
        raw IP, raw ICMP: EPERM\n\
        host's modules: unchanged\n\
        ",
        before: Some(remember_modules), after: Some(modules_unchanged);
    net_17_what_look_ups_read: "NET-17" "net/NET-17.py" =>
        "\
        /etc/resolv.conf: a file, no entry\n\
        /etc/hosts: a file, 127.0.0.1 localhost sandbox | ::1 localhost ip6-localhost sandbox\n\
        /etc/nsswitch.conf: a file, passwd: files | group: files | hosts: files\n\
        localhost: loopback\n\
        sandbox: loopback\n\
        example.com: no such name\n\
        host.docker.internal: no such name\n\
        in all: at once\n\
        ";
    net_18_proxies: "NET-18" "net/NET-18.py" =>
        "\
        proxies: none\n\
        the host's words: not there\n\
        ", variables: PROXIES;
}

const DESKTOP: &[(&str, &str)] = &[
    ("DISPLAY", ":0"),
    ("WAYLAND_DISPLAY", "wayland-0"),
    ("XAUTHORITY", "/home/somebody/.Xauthority"),
    ("DBUS_SESSION_BUS_ADDRESS", "unix:abstract=/tmp/dbus-session"),
    ("SSH_AUTH_SOCK", "/tmp/ssh-agent"),
    ("SSH_AGENT_PID", "7"),
    ("GPG_AGENT_INFO", "/tmp/gpg-agent:7:1"),
    ("GPG_TTY", "/dev/pts/7"),
    ("XDG_RUNTIME_DIR", "/run/user/1000"),
];

const PROXIES: &[(&str, &str)] = &[
    ("HTTP_PROXY", "http://user:word-of-the-host@proxy:3128"),
    ("http_proxy", "http://user:word-of-the-host@proxy:3128"),
    ("HTTPS_PROXY", "http://user:word-of-the-host@proxy:3128"),
    ("ALL_PROXY", "socks5h://user:word-of-the-host@proxy:1080"),
    ("NO_PROXY", "word-of-the-host"),
];

fn listen_on_loopback(project: &Path) {
    for (address, file) in [("127.0.0.1:0", "port4"), ("[::1]:0", "port6")] {
        // A host may have no IPv6; then its port is nobody's.
        let listener = TcpListener::bind(address).or_else(|_| TcpListener::bind("127.0.0.1:0"));
        let listener = listener.expect("listen");
        listener.set_nonblocking(true).expect("nonblocking");
        let port = listener.local_addr().expect("address").port();
        fs::write(project.join(file), port.to_string()).expect("port");
        hold(listener);
    }
}

pub(crate) fn listen_abstract(project: &Path) {
    let name = format!("sandbox-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).expect("address");
    let listener = UnixListener::bind_addr(&address).expect("listen");
    listener.set_nonblocking(true).expect("nonblocking");
    fs::write(project.join("abstract"), name).expect("name");
    hold(listener);
}

fn listen_in_project(project: &Path) {
    let listener = UnixListener::bind(project.join("socket")).expect("listen");
    listener.set_nonblocking(true).expect("nonblocking");
    hold(listener);
    hold(UnixDatagram::bind(project.join("datagrams")).expect("bind"));
    // Whoever the payload is outside: its own mode bits shall not stop it.
    for file in ["socket", "datagrams"] {
        let open = fs::Permissions::from_mode(0o777);
        fs::set_permissions(project.join(file), open).expect("mode");
    }
}

/// NET-12: what a result says of socket files is what the payload meets.
#[test]
fn net_12_the_report_is_true() {
    needs!(Userns, Python);
    let entry = ENTRIES.iter().find(|it| it.name == "net_12_socket_file_in_the_project");
    let observed = entry.expect("entry").observe(&[]).text;
    let open = observed.contains("connect SOCK_STREAM: ok");
    let told = observed.contains("open: socket files in the project can be connected to");
    assert_eq!(told, open, "{observed}");
}

/// Connections wait until they are accepted, so one that was made is still there.
pub(crate) fn nobody_came(_: &Path) -> String {
    let told = |came: bool| if came { "host: somebody came\n" } else { "" }.to_owned();
    let said = held(|it: &TcpListener| told(it.accept().is_ok()))
        + &held(|it: &UnixListener| told(it.accept().is_ok()));
    if said.is_empty() { "host: nobody came\n".to_owned() } else { said }
}

/// As a careless parent would: the program inherits them.
fn leave_sockets_open(_: &Path) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
    let client = TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
    let (unix, _) = UnixStream::pair().expect("pair");
    let sockets: [OwnedFd; 3] = [listener.into(), client.into(), unix.into()];
    for socket in &sockets {
        fcntl(socket.as_fd(), FcntlArg::F_SETFD(FdFlag::empty())).expect("inherit");
    }
    hold(sockets);
}

struct Modules(String);

fn modules() -> String {
    let mut text = String::new();
    // A kernel without modules has no such file.
    if let Ok(mut file) = File::open("/proc/modules") {
        file.read_to_string(&mut text).expect("modules");
    }
    text.lines().filter_map(|line| line.split(' ').next()).collect::<Vec<_>>().join(" ")
}

fn remember_modules(_: &Path) {
    hold(Modules(modules()));
}

fn modules_unchanged(_: &Path) -> String {
    held(|before: &Modules| {
        format!("host's modules: {}\n", if before.0 == modules() { "unchanged" } else { "changed" })
    })
}
