//! Fewer jobs while memory is short. Pure: what is available is told, what should change is answered.

/// How many looks in a row must be good before a job is added.
const CALM: u32 = 10;

/// What to do with the job budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Down to so many jobs.
    Fewer(usize),
    /// Up to so many jobs.
    More(usize),
}

/// Watches memory over a run.
#[derive(Debug)]
pub struct Pressure {
    /// Budget as the user wants it.
    most: usize,
    /// Bytes that the largest process of the run needs.
    largest: u64,
    /// Jobs that this watch took away.
    taken: usize,
    calm: u32,
}

impl Pressure {
    /// `largest`: bytes of the largest process expected; without it, that of an ordinary compiler.
    pub fn new(most: usize, largest: Option<u64>) -> Self {
        Pressure {
            most,
            largest: largest.unwrap_or(0).max(256 << 20),
            taken: 0,
            calm: 0,
        }
    }

    /// One look, about once a second: bytes available, and the size of the budget.
    ///
    /// Below the size of one large process a job goes, at once; a job that is stopped would lose its work, so
    /// running ones end by themselves. What was taken comes back, one by one, when there was room for three such
    /// processes for a while. Jobs that somebody else took from the budget do not come back.
    pub fn look(&mut self, available: u64, jobs: usize) -> Option<Change> {
        if available < self.largest {
            self.calm = 0;
            if jobs <= 1 {
                return None;
            }
            self.taken += 1;
            return Some(Change::Fewer(jobs - 1));
        }
        let roomy = available / 3 > self.largest;
        self.calm = if roomy { self.calm + 1 } else { 0 };
        if self.taken == 0 || self.calm < CALM || jobs >= self.most {
            return None;
        }
        self.calm = 0;
        self.taken -= 1;
        Some(Change::More(jobs + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_go_when_memory_is_short_and_come_back_slowly() {
        const GIB: u64 = 1 << 30;
        let mut pressure = Pressure::new(4, Some(GIB));
        assert_eq!(pressure.look(8 * GIB, 4), None);
        assert_eq!(pressure.look(GIB / 2, 4), Some(Change::Fewer(3)));
        assert_eq!(pressure.look(GIB / 2, 3), Some(Change::Fewer(2)));
        // Room for one process is no reason for another job.
        for _ in 0..CALM * 2 {
            assert_eq!(pressure.look(2 * GIB, 2), None);
        }
        let back: Vec<_> = (0..CALM * 2).filter_map(|_| pressure.look(8 * GIB, 2)).collect();
        assert_eq!(
            back,
            [Change::More(3), Change::More(3)],
            "both jobs come back, each after {CALM} looks"
        );
        assert_eq!(
            (0..CALM * 2).find_map(|_| pressure.look(8 * GIB, 2)),
            None,
            "no more than were taken"
        );
    }

    #[test]
    fn the_last_job_stays() {
        let mut pressure = Pressure::new(2, None);
        assert_eq!(pressure.look(0, 2), Some(Change::Fewer(1)));
        assert_eq!(pressure.look(0, 1), None);
    }
}
