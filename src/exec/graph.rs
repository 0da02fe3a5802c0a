//! What has to be done before what, and what to do first. Pure: tasks are numbers with a length.
//!
//! Knows no builds. The order is that of list scheduling: of all tasks that could begin, the one with the longest
//! way to the end of everything that waits for it.

use std::cmp::Ordering;

/// How far a task has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Something it needs is not done.
    Waiting,
    /// It could begin.
    Ready,
    /// It has begun.
    Running,
    /// It ended well.
    Done,
    /// It failed.
    Failed,
    /// It will not begin, since the task of this number did not end well.
    Skipped(usize),
}

#[derive(Debug, Clone)]
struct Task {
    /// Seconds, or whatever the lengths of all tasks are measured in.
    length: f64,
    /// Its own length and the longest of what waits for it.
    path: f64,
    needs: Vec<usize>,
    feeds: Vec<usize>,
    state: State,
}

/// Tasks and what they need.
#[derive(Debug, Clone)]
pub struct Graph {
    tasks: Vec<Task>,
}

impl Graph {
    /// Tasks by their lengths; an edge `(a, b)` says that `b` needs `a`.
    ///
    /// # Errors
    /// A task that needs itself in the end: one such circle, in order.
    pub fn new(lengths: &[f64], edges: &[(usize, usize)]) -> Result<Graph, Vec<usize>> {
        let mut tasks: Vec<Task> = lengths
            .iter()
            .map(|&length| Task {
                length,
                path: 0.0,
                needs: vec![],
                feeds: vec![],
                state: State::Waiting,
            })
            .collect();
        for &(first, then) in edges {
            tasks[first].feeds.push(then);
            tasks[then].needs.push(first);
        }
        let mut graph = Graph { tasks };
        for task in graph.last_first()? {
            let rest = graph.tasks[task].feeds.iter().map(|&f| graph.tasks[f].path);
            let rest = rest.fold(0.0, f64::max);
            graph.tasks[task].path = graph.tasks[task].length + rest;
        }
        for task in 0..graph.tasks.len() {
            graph.look(task);
        }
        Ok(graph)
    }

    /// All tasks, each after everything that needs it.
    fn last_first(&self) -> Result<Vec<usize>, Vec<usize>> {
        let mut left: Vec<usize> = self.tasks.iter().map(|t| t.feeds.len()).collect();
        let mut order: Vec<usize> = (0..left.len()).filter(|&t| left[t] == 0).collect();
        let mut at = 0;
        while let Some(&task) = order.get(at) {
            at += 1;
            for &need in &self.tasks[task].needs {
                left[need] -= 1;
                if left[need] == 0 {
                    order.push(need);
                }
            }
        }
        if order.len() == self.tasks.len() {
            return Ok(order);
        }
        // Every task that is left feeds another one that is left: following them ends in a circle.
        let mut way: Vec<usize> = left.iter().position(|&n| n > 0).into_iter().collect();
        loop {
            let last = *way.last().expect("a task was left");
            let next = self.tasks[last].feeds.iter().copied().find(|&f| left[f] > 0);
            let next = next.expect("a task that is left feeds one that is left");
            if let Some(start) = way.iter().position(|&t| t == next) {
                return Err(way.split_off(start));
            }
            way.push(next);
        }
    }

    /// Makes a task ready if nothing is in its way.
    fn look(&mut self, task: usize) {
        let done = |&need: &usize| self.tasks[need].state == State::Done;
        if self.tasks[task].state == State::Waiting && self.tasks[task].needs.iter().all(done) {
            self.tasks[task].state = State::Ready;
        }
    }

    /// How far a task has come.
    pub fn state(&self, task: usize) -> State {
        self.tasks[task].state
    }

    /// Tasks that could begin: the longest way first, then as they were given.
    pub fn ready(&self) -> Vec<usize> {
        let mut ready: Vec<usize> = (0..self.tasks.len())
            .filter(|&t| self.tasks[t].state == State::Ready)
            .collect();
        ready.sort_by(|&a, &b| self.longer_first(a, b));
        ready
    }

    /// The order of [`Self::ready`], for any two tasks; equal ones are told apart by nothing.
    pub fn longer_first(&self, a: usize, b: usize) -> Ordering {
        self.tasks[b].path.total_cmp(&self.tasks[a].path)
    }

    /// Whether anything could begin or has begun.
    pub fn is_over(&self) -> bool {
        let busy = |t: &Task| matches!(t.state, State::Ready | State::Running);
        !self.tasks.iter().any(busy)
    }

    /// It has begun.
    pub fn start(&mut self, task: usize) {
        self.tasks[task].state = State::Running;
    }

    /// It ended well.
    pub fn finish(&mut self, task: usize) {
        self.tasks[task].state = State::Done;
        for next in self.tasks[task].feeds.clone() {
            self.look(next);
        }
    }

    /// It ended badly, or will not begin: so does everything that needs it. Gives what is skipped now.
    pub fn fail(&mut self, task: usize) -> Vec<usize> {
        self.tasks[task].state = State::Failed;
        let mut skipped = Vec::new();
        let mut way = self.tasks[task].feeds.clone();
        while let Some(next) = way.pop() {
            if matches!(self.tasks[next].state, State::Waiting | State::Ready) {
                self.tasks[next].state = State::Skipped(task);
                skipped.push(next);
                way.extend(self.tasks[next].feeds.clone());
            }
        }
        skipped.sort_unstable();
        skipped
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Runs everything on `workers` at once and gives the order of starts and the time of the end.
    fn run(mut graph: Graph, lengths: &[f64], workers: usize) -> (Vec<usize>, f64) {
        let (mut started, mut running, mut now) = (vec![], Vec::<(f64, usize)>::new(), 0.0);
        while !graph.is_over() {
            while running.len() < workers
                && let Some(&next) = graph.ready().first()
            {
                graph.start(next);
                started.push(next);
                running.push((now + lengths[next], next));
            }
            running.sort_by(|a, b| b.partial_cmp(a).unwrap());
            let (at, task) = running.pop().unwrap();
            now = at;
            graph.finish(task);
        }
        (started, now)
    }

    #[test]
    fn the_longest_way_goes_first() {
        // Two short tasks in a row are longer than one middling task; in the order given it would take 7.
        let lengths = [2.0, 2.0, 2.0, 3.0];
        let graph = Graph::new(&lengths, &[(2, 3)]).unwrap();
        assert_eq!(run(graph, &lengths, 2), (vec![2, 0, 1, 3], 5.0));
    }

    #[test]
    fn equal_tasks_go_as_they_were_given() {
        let lengths = [1.0; 4];
        assert_eq!(run(Graph::new(&lengths, &[]).unwrap(), &lengths, 1).0, [0, 1, 2, 3]);
    }

    #[test]
    fn what_needs_a_failed_task_is_skipped_and_the_rest_goes_on() {
        let mut graph = Graph::new(&[1.0; 5], &[(0, 1), (1, 2), (3, 2), (3, 4)]).unwrap();
        assert_eq!(graph.ready(), [0, 3], "three in a row come before two");
        graph.start(0);
        assert_eq!(graph.fail(0), [1, 2]);
        assert_eq!((graph.state(1), graph.state(2)), (State::Skipped(0), State::Skipped(0)));
        graph.start(3);
        graph.finish(3);
        assert_eq!(graph.ready(), [4], "2 stays skipped although one of its needs is done");
        graph.start(4);
        assert!(!graph.is_over());
        graph.finish(4);
        assert!(graph.is_over());
    }

    #[test]
    fn a_circle_is_named() {
        assert_eq!(
            Graph::new(&[1.0; 4], &[(0, 1), (1, 2), (2, 3), (3, 1)]).unwrap_err(),
            [1, 2, 3]
        );
    }
}
