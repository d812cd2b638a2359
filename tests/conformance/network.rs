//! No network but a loopback of one's own.

use std::net::TcpListener;

use crate::needs;
use crate::support::{code, sh};

#[test]
fn there_is_no_interface_but_lo_and_it_is_up() {
    needs!(Userns);
    let ran = sh(
        "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '; grep -c 00000000000000000000000000000001 /proc/net/if_inet6",
    );
    assert_eq!(ran.stdout, "lo\n1\n", "{}", ran.stderr);
}

#[test]
fn the_outside_is_unreachable_at_once_and_names_do_not_resolve() {
    needs!(Userns, Python);
    let ran = code(
        "python",
        &[],
        b"import socket, time, errno\n\
          start = time.monotonic()\n\
          for family, address in ((socket.AF_INET, ('1.1.1.1', 443)), (socket.AF_INET6, ('2606:4700::1', 443))):\n\
          \x20   for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):\n\
          \x20       try: socket.socket(family, kind).connect(address); print('connected')\n\
          \x20       except OSError as e: print(errno.errorcode[e.errno])\n\
          try: socket.getaddrinfo('example.com', 80)\n\
          except socket.gaierror: print('no name')\n\
          print(socket.getaddrinfo('localhost', 80)[0][4][0] in ('127.0.0.1', '::1'))\n",
    );
    assert_eq!(
        ran.stdout, "ENETUNREACH\nENETUNREACH\nENETUNREACH\nENETUNREACH\nno name\nTrue\n",
        "{}",
        ran.stderr
    );
}

#[test]
fn a_listener_of_the_host_is_not_there_and_sees_nothing() {
    needs!(Userns, Python);
    let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
    listener.set_nonblocking(true).expect("nonblocking");
    let port = listener.local_addr().expect("address").port();
    let program = format!(
        "import socket, errno\nprint(errno.errorcode[socket.socket().connect_ex(('127.0.0.1', {port}))])\n"
    );
    assert_eq!(code("python", &[], program.as_bytes()).stdout, "ECONNREFUSED\n");
    let seen = listener.accept().map(drop).map_err(|error| error.kind());
    assert_eq!(seen, Err(std::io::ErrorKind::WouldBlock));
}

#[test]
fn a_server_and_a_client_inside_find_each_other() {
    needs!(Userns, Python);
    let ran = code(
        "python",
        &[],
        b"import socket\n\
          for host in ('127.0.0.1', '::1', 'localhost'):\n\
          \x20   server = socket.create_server((host, 0), family=socket.AF_INET6 if ':' in host else socket.AF_INET)\n\
          \x20   client = socket.create_connection(server.getsockname()[:2])\n\
          \x20   server.accept()[0].send(b'hello'); print(client.recv(9))\n",
    );
    assert_eq!(ran.stdout, "b'hello'\nb'hello'\nb'hello'\n", "{}", ran.stderr);
}
