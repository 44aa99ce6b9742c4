// SPDX-License-Identifier: Apache-2.0
//! A receive queue of a forwarding thread.

use std::sync::Arc;

use quietwire_dpdk::RxQueue;

use super::stage::Stage;
use crate::counters::{PORTS_MAX, QueueCounters};
use quietwire_tables::bridge::Storm;

/// A receive queue and the stage of its frames.
#[derive(Debug)]
pub(crate) struct Input {
    pub(crate) rx: RxQueue,
    /// Number of the port.
    pub(crate) port: u16,
    /// Number of the queue among the port's receive queues.
    pub(crate) queue: u16,
    pub(crate) stage: Arc<Stage>,
    /// Storm state of the port.
    pub(super) storm: Storm,
    pub(crate) counters: Arc<QueueCounters>,
}

impl Input {
    /// Creates the input of a queue.
    pub(crate) fn new(
        rx: RxQueue,
        (port, queue): (u16, u16),
        stage: Arc<Stage>,
        counters: Arc<QueueCounters>,
    ) -> Self {
        Self {
            rx,
            port,
            queue,
            storm: stage.storm(),
            stage,
            counters,
        }
    }

    /// Replaces the stage.
    pub(crate) fn set_stage(&mut self, stage: Arc<Stage>) {
        self.storm = stage.storm();
        self.stage = stage;
    }
}

/// Stages of ports for the frames that other threads received, by number of the port.
#[derive(Debug, Default)]
pub(crate) struct PortStages(Vec<Option<(Arc<Stage>, Storm)>>);

impl PortStages {
    /// Creates space for all ports, with these stages.
    pub(crate) fn new(stages: impl IntoIterator<Item = (u16, Arc<Stage>)>) -> Self {
        let mut all = Self((0..PORTS_MAX).map(|_| None).collect());
        for (port, stage) in stages {
            all.set(port, &stage);
        }
        all
    }

    /// Sets the stage of a port. The control thread holds references to the former and to the new one, so neither is freed here.
    pub(super) fn set(&mut self, port: u16, stage: &Arc<Stage>) {
        if let Some(place) = self.0.get_mut(usize::from(port)) {
            *place = Some((Arc::clone(stage), stage.storm()));
        }
    }

    #[cfg(test)]
    pub(super) fn get(&self, port: u16) -> Option<&Arc<Stage>> {
        let (stage, _) = self.0.get(usize::from(port))?.as_ref()?;
        Some(stage)
    }

    /// Returns the stage of a port, and its storm state on this thread.
    pub(super) fn of(&mut self, port: u16) -> Option<(&Stage, &mut Storm)> {
        let (stage, storm) = self.0.get_mut(usize::from(port))?.as_mut()?;
        Some((&**stage, storm))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_port_has_its_stage() {
        let mut stages = PortStages::new([(3, Arc::new(Stage::Drop))]);
        assert!(matches!(stages.of(3), Some((Stage::Drop, _))));
        assert!(stages.of(4).is_none());
        stages.set(4, &Arc::new(Stage::CrossConnect { output: 7 }));
        let output = stages.of(4).map(|(stage, _)| match stage {
            Stage::CrossConnect { output } => *output,
            _ => 0,
        });
        assert_eq!(output, Some(7));
        // No thread has received frames for others.
        let mut none = PortStages::default();
        none.set(3, &Arc::new(Stage::Drop));
        assert!(none.of(3).is_none());
    }
}
