//! What happened to the requests of a scenario, at the service or in the ideal queue.

use std::time::Duration;

/// The number of a request in its scenario.
pub type Number = usize;

/// A request that has reached the service.
pub struct Arrival {
    pub number: Number,
    pub at: Duration,
    /// What the bucket holds before the request takes anything; zero in debt.
    pub tokens: u64,
}

/// What happened, each list in the order of time; all times but those of `answered` count from the
/// start.
#[derive(Default)]
pub struct History {
    pub arrivals: Vec<Arrival>,
    /// When the work of each request started.
    pub runs: Vec<(Number, Duration)>,
    /// The requests that waited when their clients closed the connection.
    pub left: Vec<Number>,
    /// From sending each request to the end of its response.
    pub answered: Vec<(Number, Duration)>,
}

impl History {
    /// Those that have come, have not run and have not left, in the order in which they came.
    pub fn waiting(&self) -> Vec<Number> {
        let numbers = self.arrivals.iter().map(|arrival| arrival.number);
        let gone = |number| self.left.contains(&number) || self.run(number).is_some();
        numbers.filter(|&number| !gone(number)).collect()
    }

    pub fn arrival(&self, number: Number) -> &Arrival {
        let arrival = self.arrivals.iter().find(|arrival| arrival.number == number);
        arrival.expect("every request of a scenario reaches the service")
    }

    pub fn run(&self, number: Number) -> Option<Duration> {
        self.runs.iter().find(|run| run.0 == number).map(|run| run.1)
    }

    /// When the last of those ran that are not the newcomer.
    pub fn last_run(&self, newcomer: Option<Number>) -> Duration {
        let others = self.runs.iter().filter(|run| Some(run.0) != newcomer);
        others.map(|run| run.1).max().unwrap_or_default()
    }

    /// From the arrival of a request to the start of its work.
    pub fn wait(&self, number: Number) -> Duration {
        let run = self.run(number).expect("a request whose client stays runs");
        run.saturating_sub(self.arrival(number).at)
    }

    /// From sending a request to the end of its response.
    pub fn answered_after(&self, number: Number) -> Duration {
        let answered = self.answered.iter().find(|answered| answered.0 == number);
        answered.expect("a request whose client stays is answered").1
    }

    /// How many that came before a request had neither run nor left when it came.
    pub fn waiting_before(&self, number: Number) -> usize {
        let at = self.arrival(number).at;
        let before = self.came_before(number);
        before.filter(|&earlier| self.run(earlier).is_none_or(|run| run > at)).count()
    }

    /// How many that came before a request ran after it.
    pub fn overtaken_by(&self, number: Number) -> usize {
        let runs_after = self.runs.iter().rev().take_while(|run| run.0 != number);
        let after: Vec<_> = runs_after.map(|run| run.0).collect();
        self.came_before(number).filter(|earlier| after.contains(earlier)).count()
    }

    /// Those that came before a request, without those that left.
    fn came_before(&self, number: Number) -> impl Iterator<Item = Number> {
        let numbers = self.arrivals.iter().map(|arrival| arrival.number);
        let before = numbers.take_while(move |&earlier| earlier != number);
        before.filter(|earlier| !self.left.contains(earlier))
    }
}
