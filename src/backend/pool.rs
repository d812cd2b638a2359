//! Sandboxes that stand ready.
//!
//! Each was launched up to its last step and waits to be told what to run. Nobody's code has run in
//! it, and it is used once: what a run finds is what a launch of its own would have made. Which kinds
//! are wanted is learned from use, also whether with a program that has started; they are made by
//! a thread of their own while others run.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::agent::WaitingAgent;
use super::warm::Warm;
use super::{BackendError, Handover, Started};
use crate::engine::start::{CodePlace, give_order};
use crate::plan::{Command, Plan};

/// For how long a kind that nobody uses is kept ready.
const IDLE: Duration = Duration::from_secs(300);
/// For how long nobody must have taken one before more are made, while at least half of them stand, or
/// never more than one was wanted: who has taken one uses the processors now.
const QUIET: Duration = Duration::from_millis(20);
/// How long a kind that could not be made is left alone.
const AGAIN: Duration = Duration::from_secs(2);
/// How long none of a kind's programs is started ahead after one could not be.
const REFUSED: Duration = Duration::from_secs(60);

/// A sandbox that waits for its order. Whatever becomes of it, it does not outlive this value.
#[derive(Debug)]
pub(super) struct Standing {
    pub(super) order: OwnedFd,
    pub(super) started: Started,
    /// Where its code is put, if its interpreter shall start before that is there.
    pub(super) place: Option<CodePlace>,
}

/// What the pool holds.
#[derive(Debug)]
pub(super) enum Held {
    /// A sandbox that waits for its order.
    Standing(Standing),
    /// One whose interpreter waits for its code.
    Warm(Warm),
    /// One whose agent waits for its session.
    Agent(WaitingAgent),
}

impl Standing {
    /// Starts its payload; `None` if it has died meanwhile.
    pub(super) fn begin(self, command: &Command, handover: &Handover) -> Option<Started> {
        give_order(self.order.as_fd(), handover, command).is_ok().then_some(self.started)
    }
}

/// Who makes one, warm or not, and waits until it stands.
pub(super) type Make = dyn Fn(&Plan, bool) -> Result<Held, BackendError> + Send + Sync;

/// All that stand ready, and the thread that makes more.
#[derive(Debug)]
pub(super) struct Pool {
    shared: Arc<Shared>,
    keeper: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    shelf: Mutex<Shelf>,
    /// Something may be wanted.
    changed: Condvar,
    /// Something was made, or could not be.
    made: Condvar,
    most: usize,
}

#[derive(Debug, Default)]
struct Shelf {
    /// The one that was used last is the last.
    kinds: Vec<Ready>,
    closed: bool,
}

/// The sandboxes of one kind.
#[derive(Debug)]
struct Ready {
    plan: Plan,
    standing: Vec<Held>,
    wanted: usize,
    /// Never more than so many.
    most: usize,
    heat: Heat,
    used: Instant,
    not_before: Instant,
}

/// Whether the programs of a kind (an interpreter, an agent) are started ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Heat {
    /// Nobody has asked for that.
    No,
    Yes,
    /// It was tried then, and one could not be.
    Refused(Instant),
}

impl Pool {
    /// At most `most` sandboxes, made by `make`.
    pub(super) fn new(most: usize, make: Arc<Make>) -> Self {
        let (shelf, changed, made) = (Mutex::default(), Condvar::new(), Condvar::new());
        let shared = Shared { shelf, changed, made, most };
        let shared = Arc::new(shared);
        let of_keeper = Arc::clone(&shared);
        let keeper = std::thread::Builder::new().name("pool".to_owned());
        let keeper = keeper.spawn(move || of_keeper.keep(make.as_ref()));
        // Without it every launch is as if the pool were empty.
        let keeper = keeper.inspect_err(|error| tracing::warn!(%error, "no pool")).ok();
        Self { shared, keeper }
    }

    /// One that stands for `plan`. Whether or not there is one, more will be made.
    pub(super) fn take(&self, plan: &Plan) -> Option<Standing> {
        let taken = self.with(plan, |ready| {
            let standing = |held: &mut Held| matches!(held, Held::Standing(_));
            let taken = ready.standing.pop_if(standing);
            if ready.standing.is_empty() && taken.is_none() {
                // More at once than were foreseen.
                ready.wanted = (ready.wanted * 2).clamp(1, ready.most);
            }
            taken
        });
        match taken {
            Some(Held::Standing(standing)) => Some(standing),
            Some(Held::Warm(_) | Held::Agent(_)) | None => None,
        }
    }

    /// One whose interpreter waits for code. If there is none, [`Pool::take`] is to be asked.
    pub(super) fn take_warm(&self, plan: &Plan) -> Option<Warm> {
        let warm =
            |held: &Held| matches!(held, Held::Warm(warm) if warm.command == *plan.command());
        match self.take_begun(plan, self.shared.most, warm) {
            Some(Held::Warm(warm)) => Some(warm),
            Some(Held::Standing(_) | Held::Agent(_)) | None => None,
        }
    }

    /// One whose agent waits for a session. One is enough: sessions begin seldom, and last. If there is
    /// none, [`Pool::take`] is to be asked.
    pub(super) fn take_agent(&self, plan: &Plan) -> Option<WaitingAgent> {
        let agent =
            |held: &Held| matches!(held, Held::Agent(agent) if agent.command == *plan.command());
        match self.take_begun(plan, 1, agent) {
            Some(Held::Agent(agent)) => Some(agent),
            Some(Held::Standing(_) | Held::Warm(_)) | None => None,
        }
    }

    /// One whose program has started. Whether or not there is one, more will be, but not above `most`.
    fn take_begun(&self, plan: &Plan, most: usize, is: impl Fn(&Held) -> bool) -> Option<Held> {
        self.with(plan, |ready| {
            ready.most = most;
            ready.heat = match ready.heat {
                Heat::Refused(then) if then.elapsed() < REFUSED => ready.heat,
                Heat::No | Heat::Yes | Heat::Refused(_) => Heat::Yes,
            };
            ready.standing.pop_if(|held| is(held))
        })
    }

    /// Takes from what there is of the plan's kind, which becomes the one that was used last.
    fn with(&self, plan: &Plan, take: impl FnOnce(&mut Ready) -> Option<Held>) -> Option<Held> {
        let mut shelf = self.shared.shelf();
        let most = self.shared.most;
        let at = shelf.kinds.iter().position(|ready| ready.plan.stands_for(plan));
        let mut ready = at.map_or_else(|| Ready::new(plan, most), |at| shelf.kinds.remove(at));
        let taken = take(&mut ready);
        ready.used = Instant::now();
        shelf.kinds.push(ready);
        let left = shelf.make_room(most);
        drop(shelf);
        // Their cgroups go with them, which takes its time.
        drop(left);
        self.shared.changed.notify_one();
        taken
    }

    /// Waits until all that is wanted stands, or could not be made.
    pub(super) fn wait_until_filled(&self) {
        let lacks = |ready: &Ready| {
            let now = Instant::now();
            ready.due(now).is_some() && ready.not_before <= now
        };
        let mut shelf = self.shared.shelf();
        while self.keeper.is_some() && shelf.kinds.iter().any(lacks) {
            let waited = self.shared.made.wait(shelf);
            shelf = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Lets go of kinds that nobody has used for long, and of programs where memory is short.
    pub(super) fn tidy(&self) {
        let scarce = !memory_is_plenty();
        let mut shelf = self.shared.shelf();
        let old = |ready: &mut Ready| ready.used.elapsed() > IDLE;
        let left: Vec<Ready> = shelf.kinds.extract_if(.., old).collect();
        let begun = |held: &mut Held| scarce && !matches!(held, Held::Standing(_));
        let kinds = shelf.kinds.iter_mut();
        let ended: Vec<Held> =
            kinds.flat_map(|ready| ready.standing.extract_if(.., begun)).collect();
        drop(shelf);
        drop((left, ended));
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let mut shelf = self.shared.shelf();
        shelf.closed = true;
        let left = std::mem::take(&mut shelf.kinds);
        drop(shelf);
        self.shared.changed.notify_all();
        drop(left);
        if let Some(keeper) = self.keeper.take() {
            let _ = keeper.join();
        }
    }
}

impl Shared {
    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        // Every change is one assignment or one push: what is there is whole.
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes what is wanted until the pool is closed.
    fn keep(&self, make: &Make) {
        while let Some((plan, heat)) = self.next_wanted() {
            let warm = heat == Heat::Yes && memory_is_plenty();
            let made = make(&plan, warm);
            let mut shelf = self.shelf();
            let ready = shelf.kinds.iter_mut().find(|ready| ready.plan.stands_for(&plan));
            match (made, ready) {
                (Ok(standing), Some(ready)) => ready.standing.push(standing),
                (Ok(standing), None) => drop(standing),
                (Err(error), ready) => {
                    let environment = plan.environment();
                    tracing::warn!(environment, warm, %error, "no sandbox could be made ahead");
                    if let Some(ready) = ready {
                        ready.not_before = Instant::now() + AGAIN;
                        ready.heat = if warm { Heat::Refused(Instant::now()) } else { ready.heat };
                    }
                }
            }
            self.made.notify_all();
        }
    }

    /// Waits for something to make; `None` once the pool is closed.
    fn next_wanted(&self) -> Option<(Plan, Heat)> {
        let mut shelf = self.shelf();
        loop {
            if shelf.closed {
                return None;
            }
            let now = Instant::now();
            let lacking = shelf.kinds.iter().filter_map(|ready| Some((ready.due(now)?, ready)));
            match lacking.min_by_key(|(due, _)| *due) {
                Some((due, ready)) if due <= now => return Some((ready.plan.clone(), ready.heat)),
                Some((due, _)) => {
                    let waited = self.changed.wait_timeout(shelf, due - now);
                    shelf = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
                None => shelf = self.changed.wait(shelf).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

impl Ready {
    fn new(plan: &Plan, most: usize) -> Self {
        let now = Instant::now();
        let (plan, standing) = (plan.clone(), Vec::new());
        Self { plan, standing, wanted: 0, most, heat: Heat::No, used: now, not_before: now }
    }

    /// When the next one is to be made; `None` while all that are wanted stand.
    fn due(&self, now: Instant) -> Option<Instant> {
        let urgent = self.wanted > 1 && self.standing.len() * 2 < self.wanted;
        let quiet = if urgent { now } else { self.used + QUIET };
        (self.standing.len() < self.wanted).then_some(quiet.max(self.not_before))
    }
}

impl Shelf {
    /// The kinds that were used longest ago go first: those that have to.
    fn make_room(&mut self, most: usize) -> Vec<Ready> {
        let mut wanted: usize = self.kinds.iter().map(|ready| ready.wanted).sum();
        let go = self.kinds.iter().take(self.kinds.len() - 1).take_while(|ready| {
            let goes = wanted > most;
            wanted -= if goes { ready.wanted } else { 0 };
            goes
        });
        let count = go.count();
        self.kinds.drain(..count).collect()
    }
}

/// Whether an interpreter may wait in memory that others could use: an eighth of it must be free.
fn memory_is_plenty() -> bool {
    let Ok(text) = std::fs::read_to_string("/proc/meminfo") else { return false };
    let kib = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    let (all, available) = (kib("MemTotal:"), kib("MemAvailable:"));
    all.zip(available).is_some_and(|(all, available)| available > all / 8)
}
