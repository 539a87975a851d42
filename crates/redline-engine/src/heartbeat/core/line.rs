//! The order of requests: which of them come before others when room is given and taken.
//!
//! Each tenant has a line of its own. The requests of a tenant have ascending positions, and a new one has the first position after
//! those of all requests that have begun, or after the last of its own tenant. So a tenant that has one request is not behind the
//! hundreds that another submitted before, but behind those that run and one of the hundreds. With one tenant, the order is that of
//! arrival. Requests that end before they begin do not move their tenant back. A request never comes before one that has begun, and each
//! position is overtaken a bounded number of times, so the earliest request still always finishes (`scheduler/room.rs`).

use std::collections::BTreeMap;

/// Bits of a place that tell requests of the same position apart.
const ARRIVAL_BITS: u32 = 24;

/// The order of requests.
#[derive(Debug, Default)]
pub(super) struct Line {
    arrivals: u64,
    /// The last position of a request that has begun.
    begun: u64,
    /// The tenants with requests that have not begun.
    waiting: BTreeMap<String, Waiting>,
}

/// The requests of a tenant that have not begun.
#[derive(Debug)]
struct Waiting {
    /// The last position that a request got.
    last: u64,
    count: u64,
}

impl Line {
    /// The number of a new request, counted from 0.
    pub(super) fn arrive(&mut self) -> u64 {
        self.arrivals += 1;
        self.arrivals - 1
    }

    /// The place of the request with this number: the smaller comes first.
    pub(super) fn join(&mut self, tenant: &str, number: u64) -> u64 {
        let begun = self.begun;
        let waiting = self.waiting.entry(tenant.to_owned()).or_insert(Waiting { last: begun, count: 0 });
        waiting.last = waiting.last.max(begun);
        // Otherwise some left without having begun: their positions must not move the tenant back.
        if waiting.last <= begun + waiting.count {
            waiting.last += 1;
        }
        waiting.count += 1;
        (waiting.last << ARRIVAL_BITS) | (number & ((1 << ARRIVAL_BITS) - 1))
    }

    /// The request of a tenant at this place has its first pass.
    pub(super) fn begin(&mut self, place: u64, tenant: &str) {
        self.begun = self.begun.max(place >> ARRIVAL_BITS);
        self.leave(tenant);
    }

    /// A request of a tenant ends that has not begun.
    pub(super) fn leave(&mut self, tenant: &str) {
        if let Some(waiting) = self.waiting.get_mut(tenant) {
            waiting.count -= 1;
            if waiting.count == 0 {
                self.waiting.remove(tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Line {
        /// The number and the place of a new request.
        fn take(&mut self, tenant: &str) -> (u64, u64) {
            let number = self.arrive();
            (number, self.join(tenant, number))
        }
    }

    #[test]
    fn one_tenant_keeps_the_order_of_arrival() {
        let mut line = Line::default();
        let places: Vec<(u64, u64)> = (0..100)
            .map(|n| {
                let joined = line.take("");
                if n % 3 == 0 {
                    line.begin(joined.1, "");
                }
                joined
            })
            .collect();
        assert!(places.is_sorted() && places.iter().enumerate().all(|(n, (number, _))| *number == n as u64));
    }

    #[test]
    fn a_tenant_with_few_requests_comes_before_most_of_a_flood_and_after_what_runs() {
        let mut line = Line::default();
        let flood: Vec<u64> = (0..50).map(|_| line.take("a").1).collect();
        line.begin(flood[0], "a");
        line.begin(flood[1], "a");
        let few = [line.take("b").1, line.take("b").1];
        assert!(flood[1] < few[0] && flood[2] < few[0] && few[0] < flood[3]);
        assert!(flood[3] < few[1] && few[1] < flood[4]);
        // What begins moves the line on: a third tenant does not come before it.
        line.begin(few[1], "b");
        let third = line.take("c").1;
        assert!(few[1] < third && flood[3] < third && third < flood[5]);
    }

    #[test]
    fn requests_that_leave_do_not_move_their_tenant_back() {
        let mut line = Line::default();
        let mut begun = 0;
        for _ in 0..100 {
            // One tenant's requests all leave before they begin, the other's all begin.
            let gone = line.take("a").1;
            let stays = line.take("b").1;
            assert!(gone >> ARRIVAL_BITS <= (begun >> ARRIVAL_BITS) + 1);
            line.leave("a");
            line.begin(stays, "b");
            begun = stays;
        }
        let waiting: Vec<u64> = (0..10).map(|_| line.take("a").1).collect();
        for _ in 1..waiting.len() {
            line.leave("a");
        }
        let (next, other) = (line.take("a").1, [line.take("b").1, line.take("b").1]);
        assert!(waiting[9] < next, "the order of arrival");
        assert!(waiting[0] < other[0] && other[0] >> ARRIVAL_BITS == (begun >> ARRIVAL_BITS) + 1);
        line.begin(waiting[0], "a");
        line.leave("a");
        let after = line.take("a").1;
        assert_eq!(after >> ARRIVAL_BITS, (waiting[0] >> ARRIVAL_BITS) + 1, "nothing is before it");
    }
}
