// SPDX-License-Identifier: Apache-2.0
//! What the trials say about capacity and spread of one shape: likelihoods on a grid that follows where they are.

use super::loss::Shape;

/// Cells for the capacity and for the spread.
const CAPACITIES: usize = 48;
const SPREADS: usize = 24;
/// Ends of the first grid: capacity as a part of the maximum rate, and the spread's natural logarithm.
const CAPACITY: (f64, f64) = (1e-4, 2.0);
const LOG_SPREAD: (f64, f64) = (-13.8, 0.0);
/// A grid reaches so many standard deviations to each side, and is made anew when it reaches a third of that or less,
/// or when a standard deviation is under so many cells.
const REACH: f64 = 7.0;
const CELLS_MIN: f64 = 1.5;

/// A valid trial.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// Load, as a part of the maximum rate.
    pub(super) load: f64,
    /// Frames that the maximum rate would have been in that time.
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
        posterior.lay(&[]);
        posterior
    }

    /// Takes the last of all trials.
    pub(super) fn add(&mut self, all: &[Seen]) {
        let Some(last) = all.last() else { return };
        for cell in &mut self.cells {
            cell.log_likelihood += log_likelihood(self.shape, cell, last);
        }
        // Each grid is nearer to where the likelihood is; a few are enough even for a first trial that tells a lot.
        for _ in 0..8 {
            if !self.follow() {
                return;
            }
            self.lay(all);
        }
    }

    /// Of the load at which the loss ratio asked for is lost, as a part of the maximum rate.
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

    /// Moves the ends of the grid when the likelihood has left it or has become narrow; true when it did.
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

    /// Makes the cells anew, from all trials.
    fn lay(&mut self, all: &[Seen]) {
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
                .map(|seen| log_likelihood(self.shape, &cell, seen))
                .sum();
            cell.log_likelihood = sum;
            cells.push(cell);
        }
        self.cells = cells;
    }
}

/// New ends for one side of the grid, where the present ones no longer suit.
fn moved(
    (low, high): (f64, f64),
    whole: (f64, f64),
    cells: usize,
    seen: Moments,
) -> Option<(f64, f64)> {
    let cell = (high - low) / cells as f64;
    // Never narrower than one cell can tell.
    let deviation = seen.deviation.max(cell / 4.0);
    let is_narrow = deviation < CELLS_MIN * cell && cell > 1e-7;
    let near = REACH / 3.0 * deviation;
    let has_left =
        (low > whole.0 && seen.mean - low < near) || (high < whole.1 && high - seen.mean < near);
    (is_narrow || has_left).then(|| {
        let reach = REACH * deviation;
        (
            (seen.mean - reach).max(whole.0),
            (seen.mean + reach).min(whole.1),
        )
    })
}

/// Losses come in clumps: a geometric distribution, which a clump surprises less than it does Poisson's.
fn log_likelihood(shape: Shape, cell: &Cell, seen: &Seen) -> f64 {
    let lost = shape.lost(seen.load, cell.capacity, cell.log_spread.exp());
    let expected = (lost * seen.frames_of_max).max(1e-300);
    seen.lost * expected.ln() - (seen.lost + 1.0) * expected.ln_1p()
}
