//! So many runs at once, the others in the order in which they came.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::request::SessionName;

/// The room of all runs, and one with a single seat for each session: its calls run one after the
/// other, in the order in which they came, and do not take the seats of others while they wait.
#[derive(Debug)]
pub(super) struct Gates {
    all: Gate,
    sessions: Mutex<HashMap<SessionName, Gate>>,
}

/// A place in the queue of a session, if there is one, and then in that of all.
#[derive(Debug)]
pub(super) struct Turn {
    session: Option<Place>,
    all: Result<Place, Gate>,
}

/// The seats of one run.
#[derive(Debug)]
pub(super) struct Seats {
    _all: Seat,
    _session: Option<Seat>,
}

impl Gates {
    /// At most `runs` at once, at least one.
    pub(super) fn new(runs: usize) -> Self {
        Self { all: Gate::new(runs), sessions: Mutex::default() }
    }

    /// Joins the queue. Who calls first sits first.
    pub(super) fn join(&self, session: Option<SessionName>) -> Turn {
        let Some(name) = session else {
            return Turn { session: None, all: Ok(self.all.join()) };
        };
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.retain(|_, gate| !gate.is_empty());
        let gate = sessions.entry(name).or_insert_with(|| Gate::new(1));
        Turn { session: Some(gate.join()), all: Err(self.all.clone()) }
    }
}

impl Turn {
    /// Waits for the seats. `None`: the room is gone.
    pub(super) async fn seats(self) -> Option<Seats> {
        let session = match self.session {
            Some(place) => Some(place.seat().await?),
            None => None,
        };
        let place = self.all.unwrap_or_else(|gate| gate.join());
        Some(Seats { _all: place.seat().await?, _session: session })
    }
}

/// A room with a number of seats. Clones are doors to the same room.
#[derive(Debug, Clone)]
struct Gate(Arc<Mutex<Room>>);

#[derive(Debug)]
struct Room {
    free: usize,
    seats: usize,
    waiting: VecDeque<oneshot::Sender<Seat>>,
}

/// A place in the queue. Dropping it gives the place up.
#[derive(Debug)]
struct Place(oneshot::Receiver<Seat>);

/// A seat. Dropping it lets the next one in.
#[derive(Debug)]
struct Seat(Gate);

impl Gate {
    /// A room with `seats` seats, at least one.
    fn new(seats: usize) -> Self {
        Self(Arc::new(Mutex::new(Room {
            free: seats.max(1),
            seats: seats.max(1),
            waiting: VecDeque::new(),
        })))
    }

    /// Joins the queue. Who calls first sits first.
    fn join(&self) -> Place {
        let (sender, receiver) = oneshot::channel();
        self.seats().waiting.push_back(sender);
        self.fill();
        Place(receiver)
    }

    /// Whether nobody sits or waits.
    fn is_empty(&self) -> bool {
        let room = self.seats();
        room.free == room.seats && room.waiting.iter().all(oneshot::Sender::is_closed)
    }

    /// Hands free seats to those who wait. A seat that is handed to one who has just left comes
    /// back by being dropped.
    fn fill(&self) {
        while let Some(next) = self.next() {
            drop(next.send(Seat(self.clone())));
        }
    }

    /// Takes a free seat for the first who still waits.
    fn next(&self) -> Option<oneshot::Sender<Seat>> {
        let mut seats = self.seats();
        while seats.free > 0 {
            let next = seats.waiting.pop_front()?;
            if !next.is_closed() {
                seats.free -= 1;
                return Some(next);
            }
        }
        None
    }

    fn seats(&self) -> MutexGuard<'_, Room> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Waits for a seat. `None`: the room is gone.
    async fn seat(self) -> Option<Seat> {
        self.0.await.ok()
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.seats().free += 1;
        self.0.fill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn seats_go_round_in_order() {
        let gate = Gate::new(1);
        let first = gate.join().seat().await.unwrap();
        let mut second = gate.join();
        let left = gate.join();
        let mut third = gate.join();
        assert!(second.0.try_recv().is_err() && third.0.try_recv().is_err());
        drop(left);
        drop(first);
        let seat = second.0.try_recv().unwrap();
        assert!(third.0.try_recv().is_err());
        drop(seat);
        drop(third.0.try_recv().unwrap());
        assert!(gate.join().0.try_recv().is_ok());
    }

    #[test]
    fn a_seat_for_one_who_left_is_not_lost() {
        let gate = Gate::new(2);
        for _ in 0..1000 {
            drop(gate.join());
        }
        let (mut a, mut b, mut c) = (gate.join(), gate.join(), gate.join());
        let seats = (a.0.try_recv().unwrap(), b.0.try_recv().unwrap());
        assert!(c.0.try_recv().is_err());
        drop(seats);
        assert!(c.0.try_recv().is_ok());
    }
}
