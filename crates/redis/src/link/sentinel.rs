//! The connection to the master that sentinels name.
//!
//! # Design
//!
//! A sentinel that is cut off from the others misses a failover, and names the former master, which
//! may still call itself one. So all sentinels are asked at once, and their answers are votes. A vote
//! has the number of the last failover that the sentinel knows (`config-epoch`). The highest number
//! wins, then the most votes. If more than half of all sentinels name another server, that one is taken
//! should the winner not answer in time, or be no master. So one sentinel that names a dead server does
//! not take the service down. No other server is connected to.
//!
//! More than half of all sentinels decide at once, unless a vote with a higher number is there. Otherwise
//! those decide that have answered within half a second, so a sentinel may be down.
//!
//! For example, sentinels A and B name server 1 by failover 4, and C names server 2 by failover 5, as it
//! has led that failover a moment ago. If A and B answer first, server 1 is connected to. If C answers
//! before that is done, server 2 is.
//!
//! While calls use the connection, the sentinels are asked again now and then. If another server wins, by
//! a majority or by a later failover, and answers as a master, the connection is replaced. A majority that
//! knows only an earlier failover than that of the connection decides once all sentinels have answered.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::redis::{RedisError, Value};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::address::is_host;
use super::address_map::AddressMap;
use super::error::LinkError;
use super::server::{CONNECT_TIMEOUT, Server};
use super::wire::Wire;
use tollgate_kit::late::patiently;

/// Sentinels, the name of the master that they watch, and how to log in to it.
#[derive(Debug)]
pub(super) struct Sentinels {
    sentinels: Vec<Arc<Server>>,
    master: String,
    /// The login of data nodes. The address in it is not used.
    login: Server,
    map: AddressMap,
    name: String,
    /// The vote for the server of the last connection.
    present: Mutex<Option<Vote>>,
}

/// The server that a sentinel names.
#[derive(Clone, Debug)]
struct Vote {
    /// The address as the sentinel has named it. What the map makes of it may differ each time.
    place: (String, u16),
    /// The number of the failover that has made it the master. The sentinel may not tell, for want of
    /// rights.
    epoch: Option<u64>,
}

/// The votes that have come.
#[derive(Debug)]
struct Election {
    sentinels: usize,
    answers: usize,
    votes: Vec<Vote>,
    /// The vote for the server of the last connection.
    present: Option<Vote>,
    /// Why the last sentinel that did not vote did not.
    error: LinkError,
}

impl Election {
    fn add(&mut self, answer: Result<Vote, LinkError>) {
        self.answers = self.answers.saturating_add(1);
        match answer {
            Ok(vote) => self.votes.push(vote),
            Err(error) => self.error = error,
        }
    }

    fn is_over(&self) -> bool {
        self.answers >= self.sentinels
    }

    /// How many votes are like this one.
    fn count(&self, vote: &Vote) -> usize {
        let is_like = |other: &&Vote| other.epoch == vote.epoch && other.place == vote.place;
        self.votes.iter().filter(is_like).count()
    }

    fn has_majority(&self, vote: &Vote) -> bool {
        self.count(vote) > self.sentinels / 2
    }

    /// A vote for the server that has won, if any has.
    fn winner(&self) -> Option<&Vote> {
        // Where nothing else decides, the addresses do, and so in all processes alike.
        let rank = |vote: &&Vote| (vote.epoch, self.count(vote), Reverse(vote.place.clone()));
        let first = self.votes.iter().max_by_key(rank)?;
        (self.is_over() || self.has_majority(first) && !self.is_behind(first)).then_some(first)
    }

    /// The votes for the servers to connect to, the better one first: the winner, and another one that
    /// a majority names.
    fn candidates(&self) -> impl Iterator<Item = &Vote> {
        let winner = self.winner();
        let is_other = |vote: &&Vote| winner.is_some_and(|winner| winner.place != vote.place);
        let mut others = self.votes.iter().filter(is_other);
        winner.into_iter().chain(others.find(|vote| self.has_majority(vote)))
    }

    /// Whether the last connection was made by a later failover.
    fn is_behind(&self, vote: &Vote) -> bool {
        self.present.as_ref().is_some_and(|present| vote.epoch < present.epoch)
    }

    /// Whether this server is to replace that of the last connection.
    ///
    /// A few sentinels that have missed a failover, while the others do not answer, are not followed.
    fn replaces(&self, vote: &Vote) -> bool {
        let Some(present) = &self.present else { return false };
        let decides = match self.has_majority(vote) {
            true => !self.is_behind(vote) || self.votes.len() >= self.sentinels,
            false => vote.epoch > present.epoch,
        };
        vote.place != present.place && decides
    }
}

impl Sentinels {
    pub(super) fn new(
        sentinels: Vec<Server>,
        master: String,
        login: Server,
        map: AddressMap,
    ) -> Self {
        let name = format!("the master `{master}`");
        let sentinels = sentinels.into_iter().map(Arc::new).collect();
        Self { sentinels, master, login, map, name, present: Mutex::default() }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// An error reply of the master.
    pub(super) fn reply(&self, reply: &RedisError) -> LinkError {
        self.login.reply(&self.name, reply)
    }

    /// Connects to the server that wins.
    pub(super) async fn dial(&self) -> Result<Wire, LinkError> {
        let (steps, election) = self.ask();
        let (_, vote, master) = self.elect(steps, election).await?;
        *self.present() = Some(vote);
        Ok(master)
    }

    /// Connects to the server that wins, while the votes come.
    ///
    /// A sentinel that hangs or is outdated does not delay the others, nor does a server that it
    /// names. For example, after a failover two sentinels still name the former master, which hangs.
    /// The third names the new one, and that is taken as soon as it answers.
    async fn elect(
        &self,
        mut steps: JoinSet<DialStep>,
        mut election: Election,
    ) -> Result<(Election, Vote, Wire), LinkError> {
        steps.spawn(async {
            sleep(WINNER_TIMEOUT).await;
            DialStep::Late
        });
        let mut is_late = false;
        // Each server is connected to once, however many sentinels name it.
        let mut attempts = HashMap::new();
        loop {
            let candidates: Vec<_> = election.candidates().cloned().collect();
            for Vote { place, .. } in &candidates {
                if !attempts.contains_key(place) {
                    attempts.insert(place.clone(), None);
                    steps.spawn(self.reach(place.clone()));
                }
            }
            let mut is_awaited = !election.is_over();
            for vote in &candidates {
                match attempts.remove(&vote.place).flatten() {
                    // The set is dropped with all that is under way, which ends it.
                    Some(Ok(master)) => return Ok((election, vote.clone(), master)),
                    Some(failed) => _ = attempts.insert(vote.place.clone(), Some(failed)),
                    None => {
                        attempts.insert(vote.place.clone(), None);
                        is_awaited = true;
                        if !is_late {
                            break;
                        }
                    }
                }
            }
            if !is_awaited {
                let winner = candidates.first();
                let failed = winner.and_then(|vote| attempts.remove(&vote.place).flatten());
                return Err(failed.and_then(Result::err).unwrap_or(election.error));
            }
            match steps.join_next().await {
                Some(Ok(DialStep::Answered(answer))) => election.add(answer),
                Some(Ok(DialStep::Reached(place, reached))) => {
                    attempts.insert(place, Some(reached));
                }
                Some(Ok(DialStep::Late)) => is_late = true,
                Some(Err(_)) => {}
                None => return Err(election.error),
            }
        }
    }

    /// Connects to the server that a sentinel has named.
    fn reach(&self, place: (String, u16)) -> impl Future<Output = DialStep> + Send + 'static {
        let (map, login) = (self.map.clone(), self.login.clone());
        async move {
            let reached = match map.map(&place.0, place.1) {
                Ok((host, port)) => connect_to_master(login.with_host(&host, port)).await,
                Err(error) => Err(error),
            };
            DialStep::Reached(place, reached)
        }
    }

    /// Whether the sentinels name another server by now than that of the last connection, and it
    /// answers as a master.
    pub(super) async fn is_replaced(&self) -> bool {
        let (mut steps, mut election) = self.ask();
        while let Some(step) = steps.join_next().await {
            if let Ok(DialStep::Answered(answer)) = step {
                election.add(answer);
            }
        }
        if !election.winner().is_some_and(|winner| election.replaces(winner)) {
            return false;
        }
        let elected = timeout(CONNECT_TIMEOUT, self.elect(steps, election)).await;
        matches!(elected, Ok(Ok((election, vote, _))) if election.replaces(&vote))
    }

    /// Asks all sentinels at once. Each answers by a time, or has not voted.
    fn ask(&self) -> (JoinSet<DialStep>, Election) {
        let mut steps = JoinSet::new();
        for sentinel in &self.sentinels {
            let (sentinel, master) = (Arc::clone(sentinel), self.master.clone());
            steps.spawn(async move {
                let answer = patiently(VOTE_TIMEOUT, query_master(&sentinel, &master)).await;
                let late = || Err(LinkError::new(unnamed_text(&sentinel)));
                DialStep::Answered(answer.unwrap_or_else(late))
            });
        }
        let error = LinkError::new("there are no sentinels to ask");
        let sentinels = self.sentinels.len();
        let present = self.present().clone();
        (steps, Election { sentinels, answers: 0, votes: Vec::new(), present, error })
    }

    fn present(&self) -> MutexGuard<'_, Option<Vote>> {
        // A poisoned lock is harmless: it guards one value.
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum DialStep {
    /// A sentinel has named a server, or did not.
    Answered(Result<Vote, LinkError>),
    /// The server at this place has been connected to, or could not be.
    Reached((String, u16), Result<Wire, LinkError>),
    /// The winner has had its time.
    Late,
}

/// Connects to a server that was named, if it is a master.
async fn connect_to_master(server: Server) -> Result<Wire, LinkError> {
    let wire = server.dial().await?;
    match wire.send(&::redis::cmd("ROLE"), 0).await {
        Ok(role) if !is_master(&role) => {
            Err(LinkError::new(format!("{} is not a master", server.name())))
        }
        // A user without the right to `ROLE` may still have the right to decide.
        Err(error) if error.code() != Some("NOPERM") => {
            Err(server.error(format!("{} did not report its role", server.name()), error))
        }
        _ => Ok(wire),
    }
}

/// Asks one sentinel where the master is.
async fn query_master(sentinel: &Server, master: &str) -> Result<Vote, LinkError> {
    let wire = sentinel.dial().await?;
    let mut commands = ::redis::pipe();
    // The first names the new master from the moment when it is one. The second still tells of the
    // former one while the replicas are being told, but has the number.
    commands.cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(master);
    commands.cmd("SENTINEL").arg("MASTER").arg(master);
    let unnamed = |error| sentinel.error(unnamed_text(sentinel), error);
    let answers = wire.send_all(&commands, 2, 0).await.map_err(unnamed)?;
    let mut answers = answers.into_iter();
    let named = answers.next().unwrap_or(Value::Okay).extract_error().map_err(unnamed)?;
    let name = sentinel.name();
    match read_address(&named) {
        Some(Some(place)) => Ok(Vote { place, epoch: answers.next().and_then(read_epoch) }),
        Some(None) => {
            Err(LinkError::new(format!("the sentinel {name} does not know a master `{master}`")))
        }
        None => Err(LinkError::new(format!("the sentinel {name} sent no address of a master"))),
    }
}

fn unnamed_text(sentinel: &Server) -> String {
    format!("the sentinel {} did not name the master", sentinel.name())
}

/// The number of the failover since which a server is the master, in what a sentinel tells of it.
fn read_epoch(details: Value) -> Option<u64> {
    let is_epoch =
        |name: &Value| matches!(name, Value::BulkString(name) if name == b"config-epoch");
    let epoch = details.into_map_iter().ok()?.find(|(name, _)| is_epoch(name));
    let (_, Value::BulkString(digits)) = epoch? else { return None };
    str::from_utf8(&digits).ok()?.parse().ok()
}

/// The address in a sentinel's answer. `Some(None)` if the sentinel knows no such master, and
/// `None` if the answer cannot be read.
///
/// The client library's own conversion would cut a port that is too large to its last 16 bits.
pub(super) fn read_address(named: &Value) -> Option<Option<(String, u16)>> {
    let parts = match named {
        Value::Nil => return Some(None),
        Value::Array(parts) => parts,
        _ => return None,
    };
    let [Value::BulkString(host), Value::BulkString(port)] = parts.as_slice() else { return None };
    let (host, port) = (std::str::from_utf8(host).ok()?, std::str::from_utf8(port).ok()?);
    let port = port.parse().ok()?;
    is_host(host).then(|| Some((host.to_owned(), port)))
}

fn is_master(role: &Value) -> bool {
    let Value::Array(parts) = role else { return false };
    match parts.first() {
        Some(Value::BulkString(name)) => name == b"master",
        Some(Value::SimpleString(name)) => name == "master",
        _ => false,
    }
}

/// How long the sentinels are waited for if no majority agrees. It leaves half of the time of an attempt
/// to connect.
const VOTE_TIMEOUT: Duration = Duration::from_millis(500);

/// How long the server of the winner is waited for alone, votes included, before that of the majority is
/// taken. It leaves the winner half as long as the sentinels at least, and ends before the attempt does.
const WINNER_TIMEOUT: Duration = Duration::from_millis(750);
