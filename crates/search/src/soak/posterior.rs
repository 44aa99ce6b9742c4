// SPDX-License-Identifier: Apache-2.0
//! Posterior of capacity and spread of one shape, given the trials: likelihoods on a grid that moves with them.

use super::loss::Shape;

/// Number of grid cells for the capacity and for the spread.
const CAPACITIES: usize = 48;
const SPREADS: usize = 24;
/// Bounds of the first grid: capacity as a part of the maximum rate, and the natural logarithm of the spread.
const CAPACITY: (f64, f64) = (1e-4, 2.0);
const LOG_SPREAD: (f64, f64) = (-13.8, 0.0);
/// Extent of a grid to each side in standard deviations. A grid is replaced if it reaches a third of that or less, or if a standard
/// deviation covers too few cells.
const REACH: f64 = 7.0;
const CELLS_MIN: f64 = 1.5;

/// A valid trial.
#[derive(Clone, Copy, Debug)]
pub(super) struct ValidTrial {
    /// Load, as a part of the maximum rate.
    pub(super) load: f64,
    /// Frames at the maximum rate during the trial.
    pub(super) frames_of_max: f64,
    /// Frames lost.
    pub(super) lost: f64,
}

#[derive(Clone, Debug)]
struct Cell {
    capacity: f64,
    log_spread: f64,
    critical: f64,
    log_likelihood: f64,
}

#[derive(Clone, Debug)]
pub(super) struct Posterior {
    shape: Shape,
    loss_ratio: f64,
    capacity: (f64, f64),
    log_spread: (f64, f64),
    cells: Vec<Cell>,
}

/// Mean and standard deviation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moments {
    pub(super) mean: f64,
    pub(super) deviation: f64,
}

impl Posterior {
    pub(super) fn new(shape: Shape, loss_ratio: f64) -> Self {
        let mut posterior = Self {
            shape,
            loss_ratio,
            capacity: CAPACITY,
            log_spread: LOG_SPREAD,
            cells: Vec::new(),
        };
        posterior.place_cells(&[]);
        posterior
    }

    /// Adds the last of all trials.
    pub(super) fn add(&mut self, all: &[ValidTrial]) {
        let Some(last) = all.last() else { return };
        for cell in &mut self.cells {
            cell.log_likelihood += log_likelihood(self.shape, cell, last);
        }
        // Each grid is nearer to the likelihood. A few grids are enough, even after a very informative first trial.
        for _ in 0..8 {
            if !self.follow() {
                return;
            }
            self.place_cells(all);
        }
    }

    /// Returns the moments of the critical load, as a part of the maximum rate.
    pub(super) fn critical(&self) -> Moments {
        self.moments(|cell| cell.critical)
    }

    fn moments(&self, of: impl Fn(&Cell) -> f64) -> Moments {
        let most = self
            .cells
            .iter()
            .map(|cell| cell.log_likelihood)
            .fold(f64::NEG_INFINITY, f64::max);
        let weight = |cell: &Cell| (cell.log_likelihood - most).exp();
        let sum: f64 = self.cells.iter().map(weight).sum();
        let mean = self
            .cells
            .iter()
            .map(|cell| weight(cell) * of(cell))
            .sum::<f64>()
            / sum;
        let squares = self
            .cells
            .iter()
            .map(|cell| weight(cell) * (of(cell) - mean).powi(2));
        Moments {
            mean,
            deviation: (squares.sum::<f64>() / sum).sqrt(),
        }
    }

    /// Moves the bounds of the grid if the likelihood has left it or has become narrow. Returns true if they moved.
    fn follow(&mut self) -> bool {
        let capacity = self.moments(|cell| cell.capacity);
        let log_spread = self.moments(|cell| cell.log_spread);
        let new_capacity = moved(self.capacity, CAPACITY, CAPACITIES, capacity);
        let new_spread = moved(self.log_spread, LOG_SPREAD, SPREADS, log_spread);
        let has_moved = new_capacity.is_some() || new_spread.is_some();
        self.capacity = new_capacity.unwrap_or(self.capacity);
        self.log_spread = new_spread.unwrap_or(self.log_spread);
        has_moved
    }

    /// Recomputes the cells from all trials.
    fn place_cells(&mut self, all: &[ValidTrial]) {
        let at = |(low, high): (f64, f64), n: usize, of: usize| {
            low + (high - low) * (n as f64 + 0.5) / of as f64
        };
        let mut cells = Vec::with_capacity(CAPACITIES * SPREADS);
        for n in 0..CAPACITIES * SPREADS {
            let capacity = at(self.capacity, n / SPREADS, CAPACITIES);
            let log_spread = at(self.log_spread, n % SPREADS, SPREADS);
            let mut cell = Cell {
                capacity,
                log_spread,
                critical: self
                    .shape
                    .critical_load(self.loss_ratio, capacity, log_spread.exp()),
                log_likelihood: 0.0,
            };
            let sum = all
                .iter()
                .map(|observed| log_likelihood(self.shape, &cell, observed))
                .sum();
            cell.log_likelihood = sum;
            cells.push(cell);
        }
        self.cells = cells;
    }
}

/// Returns new bounds for one axis of the grid if the current ones are unsuitable.
fn moved(
    (low, high): (f64, f64),
    whole: (f64, f64),
    cells: usize,
    observed: Moments,
) -> Option<(f64, f64)> {
    let cell = (high - low) / cells as f64;
    // A deviation below a quarter of a cell cannot be resolved.
    let deviation = observed.deviation.max(cell / 4.0);
    let is_narrow = deviation < CELLS_MIN * cell && cell > 1e-7;
    let near = REACH / 3.0 * deviation;
    // The grid cannot move beyond the bounds of the whole range.
    let has_left = (low != whole.0 && observed.mean - low <= near)
        || (high != whole.1 && high - observed.mean <= near);
    (is_narrow || has_left).then(|| {
        let reach = REACH * deviation;
        (
            (observed.mean - reach).max(whole.0),
            (observed.mean + reach).min(whole.1),
        )
    })
}

/// Returns the log-likelihood of a trial. Losses occur in clumps, so their number has a geometric distribution, in which a clump is less
/// improbable than in Poisson's.
fn log_likelihood(shape: Shape, cell: &Cell, observed: &ValidTrial) -> f64 {
    let lost = shape.lost(observed.load, cell.capacity, cell.log_spread.exp());
    let expected = (lost * observed.frames_of_max).max(1e-300);
    observed.lost * expected.ln() - (observed.lost + 1.0) * expected.ln_1p()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observed(load: f64, loss_ratio: f64, frames_of_max: f64) -> ValidTrial {
        ValidTrial {
            load,
            frames_of_max,
            lost: loss_ratio * load * frames_of_max,
        }
    }

    fn cell(capacity: f64, log_spread: f64, critical: f64, log_likelihood: f64) -> Cell {
        Cell {
            capacity,
            log_spread,
            critical,
            log_likelihood,
        }
    }

    fn close(ours: f64, expected: f64) {
        let error = (ours - expected).abs();
        assert!(
            error <= 1e-12 * expected.abs().max(1.0),
            "{ours} and {expected}"
        );
    }

    #[test]
    fn the_first_grid_has_its_cells_in_the_middle_of_equal_parts_of_the_range() {
        let posterior = Posterior::new(Shape::Erf, 1e-7);
        assert_eq!(posterior.cells.len(), 48 * 24);
        let (capacity, spread) = (1.9999 / 48.0, 13.8 / 24.0);
        for (at, n, m) in [
            (0, 0.5, 0.5),
            (1, 0.5, 1.5),
            (24, 1.5, 0.5),
            (1151, 47.5, 23.5),
        ] {
            let cell = &posterior.cells[at];
            close(cell.capacity, 1e-4 + n * capacity);
            close(cell.log_spread, -13.8 + m * spread);
            let critical = Shape::Erf.critical_load(1e-7, cell.capacity, cell.log_spread.exp());
            assert_eq!((cell.critical, cell.log_likelihood), (critical, 0.0));
        }
    }

    /// Geometric distribution: a number k with mean m has the probability m^k / (1 + m)^(k + 1).
    #[test]
    fn a_likelihood_is_that_of_the_geometric_distribution() {
        let here = cell(0.5, -2.0, 0.0, 0.0);
        let mean = Shape::Stretch.lost(0.6, 0.5, (-2.0f64).exp()) * 40.0;
        let mut sum = 0.0;
        for lost in 0..400 {
            let trial = ValidTrial {
                load: 0.6,
                frames_of_max: 40.0,
                lost: f64::from(lost),
            };
            let ours = log_likelihood(Shape::Stretch, &here, &trial).exp();
            let expected = (mean / (1.0 + mean)).powi(lost) / (1.0 + mean);
            assert!(
                (ours - expected).abs() < 1e-12,
                "{lost}: {ours} and {expected}"
            );
            sum += ours;
        }
        close(sum, 1.0);
    }

    #[test]
    fn moments_are_weighted_by_likelihood() {
        let mut posterior = Posterior::new(Shape::Erf, 1e-7);
        // Weights 1, 3 and 4 of 8: mean (2 + 3 * 4 + 4 * 8) / 8, mean of squares (4 + 3 * 16 + 4 * 64) / 8.
        posterior.cells = [(2.0, 1.0f64), (4.0, 3.0), (8.0, 4.0)]
            .map(|(critical, weight)| cell(0.0, 0.0, critical, weight.ln() - 1000.0))
            .to_vec();
        let found = posterior.critical();
        close(found.mean, 5.75);
        close(found.deviation, (38.5f64 - 5.75 * 5.75).sqrt());
    }

    #[test]
    fn after_every_trial_the_cells_know_all_trials() {
        for shape in [Shape::Stretch, Shape::Erf] {
            let mut posterior = Posterior::new(shape, 1e-7);
            let mut all = Vec::new();
            for (load, loss_ratio) in [(1.0, 0.4), (0.6, 1e-3), (0.55, 0.0), (0.58, 1e-6)] {
                all.push(observed(load, loss_ratio, 1e8));
                posterior.add(&all);
                for cell in &posterior.cells {
                    let sum: f64 = all
                        .iter()
                        .map(|observed| log_likelihood(shape, cell, observed))
                        .sum();
                    assert!((cell.log_likelihood / sum - 1.0).abs() < 1e-9);
                }
            }
            // The grid has moved: the capacity is well within its bounds, and they are close together.
            let capacity = posterior.moments(|cell| cell.capacity);
            let (low, high) = posterior.capacity;
            assert!(low < capacity.mean && capacity.mean < high && high - low < 0.5);
            close(posterior.cells[0].capacity, low + (high - low) / 96.0);
        }
    }

    #[test]
    fn the_grid_follows_on_either_side_alone() {
        // The likelihood is in a single column of capacities with any spread, then the other way round.
        for by_capacity in [true, false] {
            let mut posterior = Posterior::new(Shape::Erf, 1e-7);
            for (n, cell) in posterior.cells.iter_mut().enumerate() {
                let is_likely = if by_capacity {
                    n / SPREADS == 20
                } else {
                    n % SPREADS == 10
                };
                cell.log_likelihood = if is_likely { 0.0 } else { -1e3 };
            }
            assert!(posterior.follow());
            assert_eq!(posterior.capacity != CAPACITY, by_capacity);
            assert_eq!(posterior.log_spread != LOG_SPREAD, !by_capacity);
        }
        assert!(!Posterior::new(Shape::Erf, 1e-7).follow());
    }

    #[test]
    fn ends_move_when_the_likelihood_is_narrow_or_near_them() {
        let whole = (0.0, 1000.0);
        let moved =
            |ends, mean, deviation| super::moved(ends, whole, 10, Moments { mean, deviation });
        // Cells of 10: a deviation of 15 covers one and a half cells, and a third of seven deviations is 35.
        let ends = (200.0, 300.0);
        assert_eq!(moved(ends, 250.0, 15.0), None);
        assert_eq!(moved(ends, 250.0, 14.0), Some((152.0, 348.0)));
        // The deviation is at least a quarter of a cell: seven times 2.5.
        assert_eq!(moved(ends, 250.0, 0.0), Some((232.5, 267.5)));
        // A third of the reach to one bound, or less.
        assert_eq!(moved(ends, 235.0, 15.0), Some((130.0, 340.0)));
        assert_eq!(moved(ends, 236.0, 15.0), None);
        assert_eq!(moved(ends, 265.0, 15.0), Some((160.0, 370.0)));
        assert_eq!(moved(ends, 264.0, 15.0), None);
        // The grid does not extend beyond the whole range.
        assert_eq!(moved((0.0, 100.0), 20.0, 15.0), None);
        assert_eq!(moved((900.0, 1000.0), 980.0, 15.0), None);
        assert_eq!(moved((20.0, 120.0), 30.0, 15.0), Some((0.0, 135.0)));
        assert_eq!(moved((880.0, 980.0), 970.0, 15.0), Some((865.0, 1000.0)));
    }

    #[test]
    fn cells_do_not_get_finer_than_a_ten_millionth_of_the_range() {
        let still = Moments {
            mean: 0.0,
            deviation: 0.0,
        };
        let whole = (0.0, 1e-7);
        assert_eq!(super::moved(whole, whole, 1, still), None);
        let wider = (0.0, 2e-7);
        assert!(super::moved(wider, wider, 1, still).is_some());
    }
}
