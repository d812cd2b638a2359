//! Compilers, and what they make, run.

use std::fs;

use crate::support::{Ran, directory};
use crate::{found, in_project, needs, says};

/// Runs `script` beside a source file, which is copied to the workspace.
fn built(name: &str, source: &str, script: &str) -> Ran {
    let project = directory();
    fs::write(project.path().join(name), source).expect("source");
    let script = format!("cp /project/{name} . && {script}");
    in_project("shell", project.path(), &["sh", "-c", &script])
}

#[test]
fn gcc_compiles_a_program_with_threads() {
    needs!(Userns);
    if !found("shell", &["gcc"]) {
        return;
    }
    let source = "
#include <pthread.h>
#include <stdio.h>
static void *twice(void *n) { *(int *)n *= 2; return 0; }
int main(void) {
    int n = 21; pthread_t thread;
    pthread_create(&thread, 0, twice, &n); pthread_join(thread, 0);
    return printf(\"%d\\n\", n) != 3;
}
";
    says(&built("a.c", source, "gcc -O2 -Wall -pthread a.c -o a && ./a"), "42\n");
}

#[test]
fn a_sanitized_program_finds_its_mistake() {
    needs!(Userns);
    if !found("shell", &["gcc"]) {
        return;
    }
    let source = "int main(int n, char **v) { char a[4] = {0}; return a[n + 7]; }";
    // LeakSanitizer needs ptrace, which the profile `compat` allows; AddressSanitizer does not.
    let script = "gcc -w -fsanitize=address a.c -o a && ASAN_OPTIONS=detect_leaks=0 ./a 2>&1 | grep -o stack-buffer-overflow | head -1";
    says(&built("a.c", source, script), "stack-buffer-overflow\n");
}

#[test]
fn gpp_compiles_a_program_with_exceptions() {
    needs!(Userns);
    if !found("shell", &["g++"]) {
        return;
    }
    let source = "
#include <future>
#include <iostream>
#include <stdexcept>
int main() {
    try { std::async(std::launch::async, []() -> int { throw std::runtime_error(\"caught\"); }).get(); }
    catch (const std::exception &e) { std::cout << e.what() << std::endl; }
}
";
    says(&built("a.cc", source, "g++ -std=c++17 -pthread a.cc -o a && ./a"), "caught\n");
}

#[test]
fn make_runs_two_jobs_at_once() {
    needs!(Userns);
    if !found("shell", &["make"]) {
        return;
    }
    let source = "all: a b; @cat a b\na b: ; @echo made $@ >$@\n";
    says(&built("Makefile", source, "make -s -j2"), "made a\nmade b\n");
}

#[test]
fn go_compiles_a_program_with_goroutines() {
    needs!(Userns);
    if !found("shell", &["go"]) {
        return;
    }
    let source = "
package main
import \"fmt\"
func main() {
    c := make(chan int)
    for n := 0; n < 100; n++ { go func(n int) { c <- n }(n) }
    sum := 0
    for n := 0; n < 100; n++ { sum += <-c }
    fmt.Println(sum)
}
";
    says(&built("a.go", source, "GOFLAGS=-mod=mod GO111MODULE=off go run a.go"), "4950\n");
}

const JAVA: &str = "
import java.util.concurrent.*;
class Answer {
    public static void main(String[] words) throws Exception {
        var pool = Executors.newFixedThreadPool(4);
        System.out.println(pool.submit(() -> 6 * 7).get());
        pool.shutdown();
    }
}
";

/// `javac` reads its security settings, which Debian keeps in `/etc/java-*` behind links.
#[test]
fn java_compiles_and_runs_a_program_with_threads() {
    needs!(Userns);
    if !found("shell", &["javac"]) {
        return;
    }
    says(&built("Answer.java", JAVA, "javac Answer.java && java Answer"), "42\n");
}
