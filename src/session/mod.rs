//! Live sessions: sandboxes whose interpreter waits for more code.
//!
//! - `protocol`: what server and agent say to each other
//! - `live`: one running agent, and one call to it
//! - here: all of them by name: who may have how many, and for how long
//!
//! A session is bound to its environment. Its calls run one after the other; who comes first is the
//! front end's to decide, before any thread is started.

mod live;
pub mod protocol;

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;

use self::live::{Called, Live};
use crate::backend::{Backend, BackendError, ReadError, StepError};
use crate::outcome::{Ending, Outcome, SessionNote};
use crate::plan::Plan;
use crate::request::SessionName;
use crate::supervisor::{Newest, SupervisorError};

/// How many sessions there may be, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Sessions at the same time.
    pub most: usize,
    /// How long one may lie unused.
    pub idle: Duration,
    /// How long one may live.
    pub lifetime: Duration,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            most: 16,
            idle: Duration::from_secs(30 * 60),
            lifetime: Duration::from_secs(8 * 60 * 60),
        }
    }
}

/// Why a call came to nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// Another environment's.
    #[error(
        "the session `{name}` belongs to the environment `{environment}`; use that, or another session"
    )]
    Elsewhere {
        /// The session.
        name: SessionName,
        /// Its environment.
        environment: String,
    },
    /// Too many.
    #[error("there are already {} sessions ({}); go on with one of them, or leave `session` out. One that is not used for {} s ends by itself; one ends at `exit` in shell, `os._exit(0)` in Python, `process.exit()` in Node", names.len(), names.join(", "), idle.as_secs())]
    TooMany {
        /// Their names.
        names: Vec<String>,
        /// When unused ones end.
        idle: Duration,
    },
    /// Cancelled while it was started.
    #[error("cancelled before the session was ready")]
    Cancelled,
    /// The interpreter did not get as far as to wait for code.
    #[error("the session's interpreter did not start{}", if said.is_empty() { String::new() } else { format!("; it said: {said}") })]
    NotReady {
        /// What it wrote to its standard error.
        said: String,
    },
    /// The interpreter could not be executed.
    #[error("{}", Ending::CouldNotStart { program: program.clone(), errno: *errno })]
    NotExecuted {
        /// The interpreter.
        program: String,
        /// The kernel's answer.
        errno: i32,
    },
    /// A step of the launch was refused.
    #[error(transparent)]
    Step(StepError),
    /// The launch failed.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// The sandbox reported nonsense.
    #[error(transparent)]
    Report(#[from] ReadError),
    /// The sandbox could not be ended, or a call of our own failed.
    #[error(transparent)]
    Supervisor(#[from] SupervisorError),
    /// A call of our own failed.
    #[error("{0}: {1}")]
    Call(&'static str, Errno),
}

/// All live sessions.
#[derive(Debug, Default)]
pub struct Sessions {
    rules: Rules,
    slots: Mutex<BTreeMap<SessionName, Arc<Slot>>>,
}

/// One session's place, kept while it lives and for a while after.
#[derive(Debug)]
struct Slot {
    environment: String,
    /// When it was last used: apart, so that it can be read while a call runs.
    used: Mutex<Instant>,
    state: Mutex<State>,
    /// Calls that wait for it or run in it. Changed under the lock of all slots, so that whoever
    /// comes next counts it before it lives.
    callers: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    live: Option<Live>,
    /// Why the state of earlier calls is gone, if there was any.
    epitaph: Option<String>,
}

/// So many sessions that have ended are remembered, so that whoever comes back is told.
const REMEMBERED: usize = 256;

/// One call to a session.
#[derive(Debug)]
pub struct Call<'a> {
    /// Which session.
    pub name: &'a SessionName,
    /// The plan of its sandbox, should one have to be started.
    pub plan: Plan,
    /// The code.
    pub code: &'a [u8],
    /// Readable when the caller has cancelled.
    pub cancel: BorrowedFd<'a>,
    /// Whether pictures that the code makes are wanted.
    pub images: bool,
    /// Where what the code writes is shown meanwhile.
    pub newest: Option<&'a Newest>,
}

impl Sessions {
    /// None yet.
    #[must_use]
    pub fn new(rules: Rules) -> Self {
        Self { rules, slots: Mutex::default() }
    }

    /// Runs code in a session, which is started if it is not there. Blocks.
    ///
    /// # Errors
    /// Never for what the code does; see [`SessionError`].
    pub fn call(&self, backend: &dyn Backend, call: Call<'_>) -> Result<Outcome, SessionError> {
        let slot = Caller(self.slot(call.name, call.plan.environment())?);
        let mut state = lock(&slot.0.state);
        *lock(&slot.0.used) = Instant::now();
        let result = state.call(backend, call);
        *lock(&slot.0.used) = Instant::now();
        result
    }

    /// Ends sessions whose time is over. Cheap; to be called now and then.
    pub fn expire(&self) {
        let slots: Vec<Arc<Slot>> = lock(&self.slots).values().map(Arc::clone).collect();
        // Outside of the lock: a killed sandbox takes a moment.
        slots.iter().for_each(|slot| slot.expire(&self.rules));
    }

    /// The place of a session, made if there is room, with one more caller.
    fn slot(&self, name: &SessionName, environment: &str) -> Result<Arc<Slot>, SessionError> {
        self.expire();
        let mut slots = lock(&self.slots);
        let own = slots.get(name).map(|slot| (Arc::clone(slot), slot.is_busy_or_live()));
        match own {
            Some((slot, true)) if slot.environment != environment => {
                let environment = slot.environment.clone();
                return Err(SessionError::Elsewhere { name: name.clone(), environment });
            }
            Some((slot, true)) => return Ok(slot.enter()),
            Some((_, false)) | None => {}
        }
        let names: Vec<&SessionName> =
            slots.iter().filter(|(_, slot)| slot.is_busy_or_live()).map(|(name, _)| name).collect();
        if names.len() >= self.rules.most {
            let names = names.into_iter().map(ToString::to_string).collect();
            return Err(SessionError::TooMany { names, idle: self.rules.idle });
        }
        // One that has ended is begun anew, and its epitaph told.
        if let Some((slot, _)) = own.filter(|(slot, _)| slot.environment == environment) {
            return Ok(slot.enter());
        }
        if slots.len() >= self.rules.most + REMEMBERED {
            slots.retain(|_, slot| slot.is_busy_or_live());
        }
        let slot = Arc::new(Slot {
            environment: environment.to_owned(),
            used: Mutex::new(Instant::now()),
            state: Mutex::default(),
            callers: AtomicUsize::new(0),
        });
        slots.insert(name.clone(), Arc::clone(&slot));
        Ok(slot.enter())
    }
}

impl Slot {
    /// Ends it if nobody uses it and its time is over; lets go of it if it has ended by itself.
    fn expire(&self, rules: &Rules) {
        // Locked: a call is under way.
        let Ok(mut state) = self.state.try_lock() else { return };
        let Some(live) = &mut state.live else { return };
        let why = if let Some(why) = live.is_gone() {
            why.to_owned()
        } else if live.started.elapsed() >= rules.lifetime {
            format!("it had lived for {} s", rules.lifetime.as_secs())
        } else if lock(&self.used).elapsed() >= rules.idle {
            format!("it was not used for {} s", rules.idle.as_secs())
        } else {
            return;
        };
        state.live = None;
        state.epitaph = Some(why);
    }

    fn is_busy_or_live(&self) -> bool {
        self.callers.load(Ordering::Relaxed) > 0
            || lock(&self.state).live.as_mut().is_some_and(|live| live.is_gone().is_none())
    }

    fn enter(self: Arc<Self>) -> Arc<Self> {
        self.callers.fetch_add(1, Ordering::Relaxed);
        self
    }
}

/// Someone who waits for a session or runs code in it.
struct Caller(Arc<Slot>);

impl Drop for Caller {
    fn drop(&mut self) {
        self.0.callers.fetch_sub(1, Ordering::Relaxed);
    }
}

impl State {
    fn call(&mut self, backend: &dyn Backend, call: Call<'_>) -> Result<Outcome, SessionError> {
        let Call { name, plan, code, cancel, images, newest } = call;
        let time = plan.limits().time();
        if let Some(why) = self.live.as_mut().and_then(Live::is_gone) {
            self.live = None;
            self.epitaph = Some(why.to_owned());
        }
        let (live, restarted) = match &mut self.live {
            Some(live) => (live, None),
            None => {
                let live = Live::start(backend, plan, cancel, images)?;
                // Not before: who is told nothing now is told at the next call.
                (self.live.insert(live), self.epitaph.take())
            }
        };
        let called = live.call(code, time, cancel, newest);
        if called.as_ref().map_or(true, |called| !called.alive) {
            self.live = None;
            let how = called.as_ref().map(|called| called.ending.to_string());
            self.epitaph = Some(how.unwrap_or_else(|_| "it failed".to_owned()));
        }
        let Called { ending, alive, stdout, stderr, order, late, usage, enforced, files } = called?;
        let note = SessionNote { name: name.to_string(), kept: alive, restarted, late };
        Ok(Outcome { ending, stdout, stderr, order, usage, enforced, session: Some(note), files })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
