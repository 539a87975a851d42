//! Assignment of work: contiguous shares of items, and placement of members in logical devices.

use std::ops::Range;

/// How members are placed in logical devices.
#[derive(Clone, Copy, Debug)]
pub struct Seating {
    members: usize,
    devices: usize,
}

impl Seating {
    pub(super) fn new(members: usize, devices: usize) -> Self {
        Self { members, devices }
    }

    /// The devices of a member: a place in one device, or several devices alone.
    pub fn of(self, member: usize) -> impl Iterator<Item = Seat> {
        let Self { members, devices } = self;
        let own = if devices > members {
            share(devices, 1, member, members)
        } else {
            let device = (0..devices).find(|&d| share(members, 1, d, devices).contains(&member)).unwrap_or(0);
            device..device + 1
        };
        own.map(move |device| {
            let group =
                if devices > members { member..member + 1 } else { share(members, 1, device, devices) };
            Seat { device, devices, index: member - group.start, members: group.len() }
        })
    }
}

/// A member's place in a logical device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat {
    device: usize,
    devices: usize,
    /// The member's number in the device.
    pub index: usize,
    /// Number of members of the device.
    pub members: usize,
}

impl Seat {
    /// The part of `0..items` that belongs to its device, in whole units (the last may be cut).
    pub fn shard(self, items: usize, unit: usize) -> Range<usize> {
        share(items, unit, self.device, self.devices)
    }

    /// The part of the device's share that belongs to it.
    pub(super) fn share(self, items: usize, unit: usize) -> Range<usize> {
        let shard = self.shard(items, unit);
        let own = share(shard.len(), unit, self.index, self.members);
        shard.start + own.start..shard.start + own.end
    }
}

/// The contiguous part of `0..items` that belongs to `member`, in whole units (the last may be cut).
pub fn share(items: usize, unit: usize, member: usize, members: usize) -> Range<usize> {
    let units = items.div_ceil(unit);
    let cut = |m: usize| (units * m / members * unit).min(items);
    cut(member)..cut(member + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_cover_everything_once_in_order() {
        for items in [0usize, 1, 5, 16, 17, 100] {
            for unit in [1usize, 4, 6] {
                for members in [1usize, 2, 3, 8] {
                    let mut next = 0;
                    for m in 0..members {
                        let r = share(items, unit, m, members);
                        assert_eq!(r.start, next.min(items).max(r.start.min(next)));
                        assert!(r.start % unit == 0 || r.start == items);
                        next = r.end;
                    }
                    assert_eq!(next, items);
                }
            }
        }
    }

    #[test]
    fn devices_share_everything_out_once_in_order() {
        for members in 1usize..=9 {
            for devices in 1usize..=8 {
                let seating = Seating { members, devices };
                for (items, unit) in [(1usize, 1usize), (7, 1), (100, 4), (33, 16)] {
                    let mut ranges: Vec<_> =
                        (0..members).flat_map(|m| seating.of(m)).map(|s| s.share(items, unit)).collect();
                    ranges.retain(|range| !range.is_empty());
                    ranges.sort_by_key(|range| range.start);
                    let covered = ranges.iter().fold(0, |end, range| {
                        assert_eq!(range.start, end, "{members} members, {devices} devices, {items} items");
                        range.end
                    });
                    assert_eq!(covered, items);
                }
                let seats: Vec<Seat> = (0..members).flat_map(|m| seating.of(m)).collect();
                let of = |device| seats.iter().filter(|seat| seat.device == device).count();
                assert!((0..devices).all(|device| of(device) >= 1), "a device without a member");
                assert!(
                    seats.iter().all(|seat| seat.members == of(seat.device) && seat.index < seat.members)
                );
            }
        }
    }
}
