//! One call from its arguments to its answer: the turn, the run, the cancel, the panic.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;

use serde_json::{Map, Value};
use tokio::task::{JoinError, JoinHandle, spawn_blocking};

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
    let request = Arc::new(request);
    let refuse = |fault, message: String| {
        door.refuse(&request.draft(), &message);
        Answer::from(&RunError::Other { fault, message })
    };
    let seats = tokio::select! {
        biased;
        () = &mut cancelled => {
            let message = "cancelled before it started".to_owned();
            return (refuse(Fault::Caller, message), None);
        }
        seats = turn.seats() => seats,
    };
    let cancel = match Cancel::new() {
        Ok(cancel) => cancel,
        Err(errno) => {
            let message = format!("no file descriptor is left for another run: {}", errno.desc());
            return (refuse(Fault::Host, message), seats);
        }
    };
    let mut run = match start(&door, &request, &cancel, newest) {
        Ok(run) => run,
        Err(why) => {
            let message = format!("no thread is left for another run: {why}");
            return (refuse(Fault::Host, message), seats);
        }
    };
    let ended = tokio::select! {
        ended = &mut run => ended,
        () = &mut cancelled => {
            cancel.cancel();
            run.await
        }
    };
    (ended.unwrap_or_else(defect), seats)
}

/// Starts a run on a thread of its own, as long as somebody holds the request.
///
/// # Errors
/// There is no thread for it: what tokio says.
fn start(
    door: &Arc<dyn Door>,
    request: &Arc<Request>,
    cancel: &Cancel,
    newest: Option<Newest>,
) -> Result<JoinHandle<Answer>, String> {
    let (door, cancel) = (Arc::clone(door), cancel.clone());
    // Where tokio finds no thread it panics and keeps the work: the next thread would do it, for
    // nobody.
    let request = Arc::downgrade(request);
    let work = move || {
        let Some(request) = request.upgrade() else { return Answer::defect("nobody waits") };
        match door.run(&request, &cancel, newest) {
            Ok(outcome) => Answer::from(&outcome).with_receipt(door.receipt(&request.environment)),
            Err(error) => Answer::from(&error),
        }
    };
    catch_unwind(AssertUnwindSafe(|| spawn_blocking(work))).map_err(|panic| {
        let why = words(panic.as_ref());
        why.strip_prefix("OS can't spawn worker thread: ").unwrap_or(why).to_owned()
    })
}

/// The answer where a panic ended the call.
fn defect(error: JoinError) -> Answer {
    let why = match error.try_into_panic() {
        Ok(panic) => words(panic.as_ref()).to_owned(),
        Err(error) => error.to_string(),
    };
    Answer::defect(&format!("this is a defect of the server, not of your code: {why}"))
}

fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic")
}
