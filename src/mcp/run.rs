//! One call from its arguments to its answer: the turn, the run, the cancel, the panic.

use std::any::Any;
use std::pin::pin;
use std::sync::Arc;

use serde_json::{Map, Value};
use tokio::task::{JoinError, spawn_blocking};

use crate::request::Request;
use crate::runner::{Cancel, Fault, Newest, RunError};

use super::answer::Answer;
use super::queue::{Seats, Turn};
use super::{Door, Offer, call};

/// Answers one call. Whatever happens, a panic included, there is an answer.
///
/// When `cancelled` is done the run is told to end and its end is waited for. What the code writes
/// meanwhile is shown in `newest`.
///
/// The seats are to be given up once the answer is on its way: the next call of the same session
/// shall not be answered before.
pub(super) async fn answer(
    door: Arc<dyn Door>,
    offers: Arc<[Offer]>,
    mut arguments: Map<String, Value>,
    turn: Turn,
    cancelled: impl Future<Output = ()> + Send + 'static,
    newest: Option<Newest>,
) -> (Answer, Option<Seats>) {
    // A task of its own, so that a panic anywhere below is a value here.
    let task = tokio::spawn(async move {
        match call::request(&mut arguments, &offers) {
            Ok(request) => run(door, request, turn, cancelled, newest).await,
            Err(advice) => {
                door.refuse(&call::draft(Some(&arguments)), &advice);
                (Answer::advice(&advice), None)
            }
        }
    });
    task.await.unwrap_or_else(|error| (defect(error), None))
}

async fn run(
    door: Arc<dyn Door>,
    request: Request,
    turn: Turn,
    cancelled: impl Future<Output = ()>,
    newest: Option<Newest>,
) -> (Answer, Option<Seats>) {
    let mut cancelled = pin!(cancelled);
    let refused = |answer: Answer| {
        door.refuse(&request.draft(), &answer.text);
        answer
    };
    let seats = tokio::select! {
        biased;
        () = &mut cancelled => return (refused(Answer::never_started()), None),
        seats = turn.seats() => seats,
    };
    let cancel = match Cancel::new() {
        Ok(cancel) => cancel,
        Err(errno) => return (refused(no_descriptor(errno)), seats),
    };
    let switch = cancel.clone();
    let mut run = spawn_blocking(move || {
        let answer = match door.run(&request, &cancel, newest) {
            Ok(outcome) => Answer::from(&outcome).with_receipt(door.receipt(&request.environment)),
            Err(error) => Answer::from(&error),
        };
        (answer, seats)
    });
    let ended = tokio::select! {
        ended = &mut run => ended,
        () = &mut cancelled => {
            switch.cancel();
            run.await
        }
    };
    ended.unwrap_or_else(|error| (defect(error), None))
}

fn no_descriptor(errno: nix::errno::Errno) -> Answer {
    let message = format!("no file descriptor is left for another run: {}", errno.desc());
    Answer::from(&RunError::Other { fault: Fault::Host, message })
}

/// The answer where a panic ended the call.
fn defect(error: JoinError) -> Answer {
    let why = match error.try_into_panic() {
        Ok(panic) => words(panic.as_ref()).to_owned(),
        Err(error) => error.to_string(),
    };
    // So says tokio, and cannot be asked before.
    if let Some(errno) = why.strip_prefix("OS can't spawn worker thread: ") {
        let message = format!("no thread is left for another run: {errno}");
        return Answer::from(&RunError::Other { fault: Fault::Host, message });
    }
    Answer::defect(&format!("this is a defect of the server, not of your code: {why}"))
}

fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic")
}
