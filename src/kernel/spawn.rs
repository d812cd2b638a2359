//! New processes: fork(2), and a child that shares its parent's memory until it executes a program.

use std::sync::atomic::{AtomicI32, Ordering};

use nix::errno::Errno;
use nix::unistd::{ForkResult, Pid};

use super::check;

/// Plain fork(2) for a process with one thread.
///
/// # Errors
/// `EAGAIN` at a process limit, `ENOMEM`.
pub fn fork() -> nix::Result<ForkResult> {
    // SAFETY: who calls this has one thread: launchers and pid 1s, which are cloned from a process that never
    // started a second one, the jailer, the command line, and a server before its first thread. So the child
    // may run any code.
    unsafe { nix::unistd::fork() }
}

#[cfg(not(target_env = "gnu"))]
compile_error!(
    "this needs the GNU C library, linked statically if need be: musl's clone(3) refuses CLONE_CHILD_CLEARTID"
);

/// Stack of a child that shares its parent's memory, bytes: what its few steps use, many times over.
const CHILD_STACK: usize = 256 << 10;

/// What a child that shares its parent's memory is given.
struct Shared<F> {
    /// 1 once the child may begin.
    gate: AtomicI32,
    /// 0 once the child has left this memory; the kernel writes it (`CLONE_CHILD_CLEARTID`).
    present: AtomicI32,
    body: F,
}

/// Starts a child that runs `body` in this process's memory and with its descriptors, on a stack of
/// its own, and waits until it has executed a program or ended (clone(2), `CLONE_VM | CLONE_FILES`). No
/// page table is copied, which is most of what a fork costs. `meanwhile` runs here before `body` begins
/// there, and is not inherited.
///
/// `body` ends with exec or returns its exit code; what it changes in memory and what descriptors it
/// opens and closes stays so. As long as it waits for something this process sleeps (`CLONE_VFORK` would
/// make it count as load).
///
/// # Errors
/// `EAGAIN` at a process limit, `ENOMEM`.
pub fn spawn_sharing<F: FnMut() -> libc::c_int>(
    meanwhile: impl FnOnce(),
    body: F,
) -> nix::Result<Pid> {
    extern "C" fn enter<F: FnMut() -> libc::c_int>(shared: *mut libc::c_void) -> libc::c_int {
        let shared = shared.cast::<Shared<F>>();
        // SAFETY: `shared` is the pointer that is given to clone below, and lives until this process
        // has left the memory. Nobody else refers to `gate` but by shared references.
        wait_while(unsafe { &(*shared).gate }, 0);
        // SAFETY: as above; and nobody else refers to `body` at all.
        let body = unsafe { &mut (*shared).body };
        // The C library's clone(3) ends the child with this by _exit(2).
        body()
    }
    let mut shared = Shared { gate: AtomicI32::new(0), present: AtomicI32::new(1), body };
    let stack = Stack::new(CHILD_STACK)?;
    let (present, flags) = (shared.present.as_ptr(), libc::CLONE_VM | libc::CLONE_FILES);
    let flags = flags | libc::CLONE_CHILD_CLEARTID | libc::SIGCHLD;
    let argument = (&raw mut shared).cast();
    // SAFETY: stack and `shared` outlive the child's use of this memory, which is waited for below. The
    // caller has one thread. The two tasks share even its thread-local storage, so they take turns: the
    // child waits at the gate while `meanwhile` runs; afterwards this task is in futex(2), which
    // fails with nothing before the child has left (signals are blocked or fatal), and so writes no
    // errno beside it. The child has its own signal dispositions, mask and credentials (none of
    // those flags is given). The two null pointers belong to flags that are not given.
    let pid = unsafe {
        let none = std::ptr::null_mut::<libc::c_void>();
        libc::clone(enter::<F>, stack.top(), flags, argument, none, none, present)
    };
    if pid < 0 {
        return Err(Errno::last());
    }
    meanwhile();
    shared.gate.store(1, Ordering::Release);
    wake(&shared.gate);
    wait_while(&shared.present, 1);
    Ok(Pid::from_raw(pid))
}

/// Waits until `word` is no longer `value` (futex(2)). Not a private one: the kernel wakes who waits for
/// a task's end by the other kind (set_tid_address(2)).
fn wait_while(word: &AtomicI32, value: i32) {
    while word.load(Ordering::Acquire) == value {
        let none = std::ptr::null::<libc::timespec>();
        // SAFETY: `word` is aligned and lives; without a time the kernel waits for a wake or another value.
        unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, value, none) };
    }
}

fn wake(word: &AtomicI32) {
    // SAFETY: `word` is aligned and lives; the kernel does not write it.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, 1) };
}

/// Memory for a child's stack.
struct Stack {
    memory: *mut libc::c_void,
    size: usize,
}

impl Stack {
    fn new(size: usize) -> nix::Result<Self> {
        // SAFETY: a fresh anonymous mapping; the kernel chooses where.
        let memory = unsafe {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK;
            libc::mmap(std::ptr::null_mut(), size, protection, flags, -1, 0)
        };
        if memory == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        let stack = Self { memory, size };
        // Its lowest page is a guard: who overruns the stack dies instead of writing elsewhere.
        // SAFETY: the page lies within the mapping above, and nothing is in it.
        check(libc::c_long::from(unsafe { libc::mprotect(memory, 4096, libc::PROT_NONE) }))?;
        Ok(stack)
    }

    /// Its upper end, from where it grows.
    fn top(&self) -> *mut libc::c_void {
        // SAFETY: `size` bytes were mapped: one past their end may be pointed to.
        unsafe { self.memory.byte_add(self.size) }
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's, and whoever was given its end has left this memory.
        unsafe { libc::munmap(self.memory, self.size) };
    }
}
