//! Python and what of its standard library leans on the kernel.

use std::fs;

use crate::support::{Ran, code, directory};
use crate::{in_project, needs, says};

/// Runs a program from a file, as `spawn` of multiprocessing needs it.
fn file(program: &str) -> Ran {
    let project = directory();
    fs::write(project.path().join("main.py"), program).expect("main.py");
    in_project("python", project.path(), &["python3", "/project/main.py"])
}

#[test]
fn sqlite_keeps_a_journal_and_shares_memory_with_a_second_connection() {
    needs!(Userns, Python);
    let program = "
import sqlite3
one, two = sqlite3.connect('a.db'), sqlite3.connect('a.db')
print(one.execute('pragma journal_mode = wal').fetchone()[0])
one.execute('create table t(n)')
one.executemany('insert into t values(?)', [(n,) for n in range(1000)])
one.commit()
print(two.execute('select count(*), sum(n) from t').fetchone())
try:
    one.execute('begin immediate'); two.execute('pragma busy_timeout = 0'); two.execute('begin immediate')
except sqlite3.OperationalError as error: print(error)
";
    says(&code("python", &[], program.as_bytes()), "wal\n(1000, 499500)\ndatabase is locked\n");
}

#[test]
fn ssl_makes_a_context_and_real_randomness() {
    needs!(Userns, Python);
    let program = "
import ssl, hashlib
context = ssl.create_default_context()
print(context.check_hostname, len(ssl.RAND_bytes(16)), hashlib.sha256(b'').hexdigest()[:8])
";
    says(&code("python", &[], program.as_bytes()), "True 16 e3b0c442\n");
}

#[test]
fn ctypes_calls_libc_and_is_called_back() {
    needs!(Userns, Python);
    // A callback needs memory that is written and then executed.
    let program = "
from ctypes import *
libc = CDLL(None)
order = CFUNCTYPE(c_int, POINTER(c_int), POINTER(c_int))(lambda a, b: a[0] - b[0])
numbers = (c_int * 4)(3, 1, 4, 2)
libc.qsort(numbers, 4, sizeof(c_int), order)
print(libc.abs(-4), list(numbers))
";
    says(&code("python", &[], program.as_bytes()), "4 [1, 2, 3, 4]\n");
}

#[test]
fn multiprocessing_pools_start_in_every_way() {
    needs!(Userns, Python);
    let program = "
import multiprocessing
def square(n): return n * n
if __name__ == '__main__':
    for way in ['fork', 'spawn', 'forkserver']:
        with multiprocessing.get_context(way).Pool(3) as pool:
            print(way, sum(pool.map(square, range(100))))
";
    says(&file(program), "fork 328350\nspawn 328350\nforkserver 328350\n");
}

#[test]
fn multiprocessing_shares_by_manager_semaphore_queue_and_memory() {
    needs!(Userns, Python);
    let program = "
import multiprocessing as mp
from multiprocessing import shared_memory
def work(names, gate, queue, name):
    with gate: names.append(name)
    queue.put(name * 2)
def fill(name):
    block = shared_memory.SharedMemory(name=name); block.buf[:4] = b'seen'; block.close()
if __name__ == '__main__':
    with mp.Manager() as manager:
        names, gate, queue = manager.list(), mp.Semaphore(2), mp.Queue()
        all = [mp.Process(target=work, args=(names, gate, queue, n)) for n in range(4)]
        [one.start() for one in all]
        print(sorted(queue.get() for _ in all))
        [one.join() for one in all]
        print(sorted(names))
    block = shared_memory.SharedMemory(create=True, size=1 << 20)
    one = mp.Process(target=fill, args=(block.name,)); one.start(); one.join()
    print(bytes(block.buf[:4])); block.close(); block.unlink()
";
    says(&file(program), "[0, 2, 4, 6]\n[0, 1, 2, 3]\nb'seen'\n");
}

#[test]
fn threads_share_a_lock() {
    needs!(Userns, Python);
    let program = "
import threading
from concurrent.futures import ThreadPoolExecutor
lock, total = threading.Lock(), 0
def add(n):
    global total
    with lock: total += n
with ThreadPoolExecutor(32) as pool: list(pool.map(add, range(1000)))
print(total)
";
    says(&code("python", &[], program.as_bytes()), "499500\n");
}

#[test]
fn asyncio_talks_to_a_subprocess_and_over_loopback() {
    needs!(Userns, Python);
    let program = "
import asyncio
async def upper(reader, writer):
    writer.write((await reader.read(9)).upper()); await writer.drain(); writer.close()
async def main():
    child = await asyncio.create_subprocess_exec('cat', stdin=-1, stdout=-1)
    print(await child.communicate(b'through cat'), child.returncode)
    server = await asyncio.start_server(upper, '127.0.0.1', 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.write(b'loop'); print(await reader.read())
    writer.close(); server.close()
asyncio.run(main())
";
    says(&file(program), "(b'through cat', None) 0\nb'LOOP'\n");
}
