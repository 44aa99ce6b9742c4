// SPDX-License-Identifier: Apache-2.0
//! Running topologies: the programs started for each element, how their ports are connected, and where each named lab keeps
//! its state.

mod cards;
mod configurations;
mod device;
mod ends;
mod layout;
mod options;
mod place;
mod registry;
mod roles;
mod set;
#[cfg(test)]
mod spawn_faults;
mod state;
#[cfg(test)]
mod tests;
mod wiring;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use quietwire_base::Deadline;
use quietwire_base::storage::Disk;
use quietwire_base::wait_until;
use quietwire_host::cpuset::Cpuset;
use quietwire_host::emulation;
use quietwire_tester::account::{DeviceCounts, DeviceLayout};

use crate::counts::TIMEOUT;
use crate::cycle_reader::CycleReader;
use crate::cycles::CycleCount;
use crate::element::{ElementContext, Plan};
use crate::error::LabError;
use crate::own_view::OwnView;
use crate::programs::{Forwarder, Hypervisor, InGuest, forwarder_for, steer};
use crate::stop::Stop;
use crate::topology::{ElementPlace, Graph, Program, Role};
use crate::unavailable::Unavailable;

pub use crate::element::GuestSide;
pub use configurations::check_configurations;
pub use ends::Ends;
pub use options::{GuestOptions, UpOptions};
pub(crate) use registry::NAMED;
pub use registry::{LabEntry, UndoReport, check_none_up, clean_named, find, known, take_down};
pub use state::{ElementState, LabState, TesterSide};

use registry::Claim;
use wiring::rank;

/// Timeout until the sockets of all ports exist.
const SOCKETS_DEADLINE: Duration = Duration::from_secs(20);

#[derive(Debug)]
struct Running {
    plan: Plan,
    forwarder: Box<dyn Forwarder>,
    version: String,
    /// Every command that was run for it.
    commands: Vec<String>,
}

impl Running {
    /// Runs a step for it and records the commands.
    fn step(
        &mut self,
        context: &mut ElementContext<'_>,
        work: impl FnOnce(&mut dyn Forwarder, &Plan, &mut ElementContext<'_>) -> Result<(), LabError>,
    ) -> Result<(), LabError> {
        let began = context.commands.len();
        let outcome = work(self.forwarder.as_mut(), &self.plan, context);
        self.commands
            .extend(context.commands.iter().skip(began).cloned());
        outcome
    }

    /// Returns its current state.
    fn state(&mut self) -> Result<ElementState, LabError> {
        ElementState::of(
            &self.plan,
            self.forwarder.as_mut(),
            self.version.clone(),
            self.commands.clone(),
        )
    }

    /// Completes the start, after all ports have their peers.
    fn finish(&mut self, context: &mut ElementContext<'_>) -> Result<(), LabError> {
        self.step(context, |forwarder, plan, context| {
            forwarder.connect(plan, context)?;
            forwarder.program(plan, context)
        })?;
        wait_for_sockets(&self.plan, &context.stop)
    }
}

/// A running topology: the device under test, either a single switch or many elements. Dropping it takes the lab down.
#[derive(Debug)]
pub struct UpLab {
    claim: Option<Claim>,
    running: Vec<Running>,
    state: LabState,
    /// CPU set that all its processes are in.
    set: Option<Cpuset>,
}

impl UpLab {
    /// Starts a topology. Switches start first, so that other elements find their sockets.
    ///
    /// # Errors
    /// [`LabError::NameTaken`], [`LabError::Unavailable`] before anything is started, [`LabError::Aborted`], or the start that failed.
    /// Everything is rolled back in that case, or the error is [`LabError::NotUndone`], which lists the changes that are left.
    pub fn up(options: &UpOptions) -> Result<Self, LabError> {
        let UpOptions {
            state_directory,
            name,
            ..
        } = options;
        Self::start_with_build(state_directory, name, |claim, running| {
            build(options, claim, running)
        })
    }

    /// Claims a name and starts a topology by `build`, which lists every element before it starts it.
    fn start_with_build(
        state_directory: &Path,
        name: &str,
        build: impl FnOnce(&mut Claim, &mut Vec<Running>) -> Result<Built, LabError>,
    ) -> Result<Self, LabError> {
        let mut claim = Claim::take(&Disk, state_directory, name)?;
        let mut running = Vec::new();
        let built = build(&mut claim, &mut running).and_then(|(state, set)| {
            state.write(claim.directory())?;
            Ok((state, set))
        });
        match built {
            Ok((state, set)) => Ok(Self {
                claim: Some(claim),
                running,
                state,
                set,
            }),
            Err(cause) => Err(match end(&mut running, Some(claim)) {
                Ok(()) => cause,
                Err(left) => LabError::NotUndone {
                    cause: Box::new(cause),
                    left: Box::new(left),
                },
            }),
        }
    }

    /// Returns the lab's state.
    #[must_use]
    pub fn state(&self) -> &LabState {
        &self.state
    }

    /// Returns the names of elements of which a process exited without a request since the last call. The state lists them, too.
    ///
    /// # Errors
    /// The state cannot be written.
    pub fn look_for_dead(&mut self) -> Result<Vec<String>, LabError> {
        let mut dead = Vec::new();
        for running in &mut self.running {
            let name = &running.plan.name;
            if running.forwarder.check().is_err() && !self.state.died.contains(name) {
                dead.push(name.clone());
            }
        }
        if let (false, Some(claim)) = (dead.is_empty(), &self.claim) {
            self.state.died.extend(dead.iter().cloned());
            self.state.write(claim.directory())?;
        }
        Ok(dead)
    }

    /// Reads the frame counters of every element. One deadline of 2 s covers all elements.
    #[must_use]
    pub fn frames(&self) -> DeviceCounts {
        let deadline = Deadline::after(TIMEOUT);
        let reported = self.running.iter().map(|running| {
            let frames = running.forwarder.frames(&running.plan, deadline);
            (running.plan.name.clone(), frames)
        });
        DeviceCounts {
            elements: reported.collect(),
        }
    }

    /// Returns how the elements' ports are connected to each other and to the tester's.
    #[must_use]
    pub fn layout(&self) -> DeviceLayout {
        layout::of(&self.state.graph)
    }

    /// Returns the forwarding cycles of each element that counts them, by name.
    #[must_use]
    pub fn cycles(&self) -> BTreeMap<String, CycleCount> {
        let reported = self.running.iter().filter_map(|running| {
            let name = running.plan.name.clone();
            match running.forwarder.cycles(&running.plan) {
                Ok(count) => Some((name, count?)),
                Err(reason) => {
                    tracing::debug!("{name} does not report its cycles: {reason}");
                    None
                }
            }
        });
        reported.collect()
    }

    /// Returns a reader of the forwarding cycles of the switch, or of the first element if there is no switch; none if reading them starts
    /// a program.
    #[must_use]
    pub fn cycle_reader(&self) -> Option<CycleReader> {
        let is_switch = |running: &&Running| {
            let mut elements = self.state.graph.elements.iter();
            elements.any(|other| other.name == running.plan.name && other.role == Role::Switch)
        };
        let switch = self.running.iter().find(is_switch);
        let observed = switch.or(self.running.first())?;
        observed.forwarder.cycle_reader(&observed.plan)
    }

    /// Reads what each element counts about its own work, or why it does not report it. One deadline of 2 s covers all elements.
    #[must_use]
    pub fn own_views(&self) -> BTreeMap<String, Result<OwnView, String>> {
        let deadline = Deadline::after(TIMEOUT);
        let reported = self.running.iter().map(|running| {
            let view = running.forwarder.own_view(&running.plan, deadline);
            (running.plan.name.clone(), view)
        });
        reported.collect()
    }

    /// Takes the lab down.
    ///
    /// # Errors
    /// A process that could not be stopped or a change that could not be undone.
    pub fn down(mut self) -> Result<(), LabError> {
        end(&mut self.running, self.claim.take())
    }
}

impl Drop for UpLab {
    fn drop(&mut self) {
        if let Err(error) = end(&mut self.running, self.claim.take()) {
            tracing::error!("{error}");
        }
    }
}

fn end(running: &mut Vec<Running>, claim: Option<Claim>) -> Result<(), LabError> {
    let mut outcome = Ok(());
    // All elements get SIGTERM before the first is waited for: an exited thread has to run on its CPU once more before the kernel
    // releases it, and threads that poll on the same CPU may delay that for a minute.
    for running in running.iter_mut().rev() {
        running.forwarder.ask_to_end();
    }
    for mut running in running.drain(..).rev() {
        outcome = outcome.and(running.forwarder.stop());
    }
    // The journal has all processes too, and an error of undoing it lists everything that is left.
    let released = claim.map_or(Ok(()), |claim| claim.release(&Disk));
    released.and(outcome)
}

/// State of a lab that was started, and the CPU set of its processes.
type Built = (LabState, Option<Cpuset>);

fn build(
    options: &UpOptions,
    claim: &mut Claim,
    running: &mut Vec<Running>,
) -> Result<Built, LabError> {
    let UpOptions { graph, cpus, .. } = options;
    roles::check(options)?;
    cards::check(Path::new("/"), graph)?;
    let hypervisor = Hypervisor::of(graph, &options.guests, &options.program)?;
    let forwarders = forwarders(options, hypervisor.as_ref())?;
    let set = set::of_lab(options, claim)?;
    let directory = claim.directory().to_owned();
    let wiring = wiring::Wiring::of(graph, &directory, claim.tag());
    let mut commands = Vec::new();
    let mut context = ElementContext::new(claim.journal(), &mut commands);
    context.set = set.clone();
    context.stop = options.stop.clone();
    place::make_namespaces(graph, &wiring, &mut context)?;
    place::make_links(graph, &wiring, &mut context)?;
    for (index, forwarder, version) in forwarders {
        options.stop.check()?;
        let element = Running {
            plan: wiring.plan(options, index),
            forwarder,
            version,
            commands: Vec::new(),
        };
        start_element(running, element, &mut context)?;
    }
    finish_guests(options, &wiring, running, &mut context)?;
    let mut elements = Vec::new();
    for running in running.iter_mut() {
        elements.push(running.state()?);
    }
    let mut warnings = cpus.warnings();
    warnings.extend(emulation::warning(Path::new("/")));
    warnings.extend(hypervisor.iter().flat_map(|all| all.warnings(graph)));
    let state = LabState {
        name: options.name.clone(),
        owner: quietwire_base::ProcessId::own(),
        graph: graph.clone(),
        cpus: cpus.clone(),
        warnings,
        tester: wiring.tester(graph),
        elements,
        died: Vec::new(),
    };
    Ok((state, set))
}

/// Starts an element. It is in the list before it is started: if a later step fails, it is stopped with the others.
fn start_element(
    running: &mut Vec<Running>,
    element: Running,
    context: &mut ElementContext<'_>,
) -> Result<(), LabError> {
    context.make_directory(&element.plan.directory)?;
    let is_guest = element.plan.place == ElementPlace::Guest;
    running.push(element);
    let Some(element) = running.last_mut() else {
        return Ok(());
    };
    element.step(context, |forwarder, plan, context| {
        steer(plan, context)?;
        forwarder.start(plan, context)
    })?;
    // Guests boot at once, and only when all their ports have a peer.
    if is_guest {
        return Ok(());
    }
    element.finish(context)
}

/// Number of an element, its program, and the program's version.
type Chosen = (usize, Box<dyn Forwarder>, String);

/// Returns the programs and their versions, in start order. Missing prerequisites are reported before anything is started.
fn forwarders(
    options: &UpOptions,
    hypervisor: Option<&Arc<Hypervisor>>,
) -> Result<Vec<Chosen>, LabError> {
    let UpOptions { graph, program, .. } = options;
    let elements = graph.elements.iter().enumerate();
    let mut order: Vec<_> = elements
        .filter(|(_, element)| element.role != Role::Tester)
        .collect();
    order.sort_by_key(|(index, element)| (rank(element.role), *index));
    let mut forwarders = Vec::new();
    for (index, element) in order {
        let forwarder: Box<dyn Forwarder> = match (element.place, hypervisor) {
            (ElementPlace::Guest, Some(hypervisor)) => {
                Box::new(InGuest::new(hypervisor, element.program))
            }
            _ => forwarder_for(element.program, program),
        };
        let version = forwarder.probe().map_err(|reason| LabError::Unavailable {
            name: element.name.clone(),
            reason,
        })?;
        forwarders.push((index, forwarder, version));
    }
    Ok(forwarders)
}

/// Boots the guests and starts the programs in them. QEMU boots a guest only when each port has a peer. The tester does not
/// run yet, so a switch that forwards nothing stands in for it until the guests are up.
fn finish_guests(
    options: &UpOptions,
    wiring: &wiring::Wiring,
    running: &mut [Running],
    context: &mut ElementContext<'_>,
) -> Result<(), LabError> {
    let is_guest = |running: &&mut Running| running.plan.place == ElementPlace::Guest;
    let mut stand_in = wiring.stand_in(options).map(|plan| Running {
        plan,
        forwarder: forwarder_for(Program::Quietwire, &options.program),
        version: String::new(),
        commands: Vec::new(),
    });
    if let Some(stand_in) = &mut stand_in {
        context.make_directory(&stand_in.plan.directory)?;
        stand_in.forwarder.start(&stand_in.plan, context)?;
    }
    for guest in running.iter_mut().filter(is_guest) {
        guest.step(context, |forwarder, plan, context| {
            forwarder.connect(plan, context)
        })?;
    }
    for guest in running.iter_mut().filter(is_guest) {
        guest.step(context, |forwarder, plan, context| {
            forwarder.program(plan, context)
        })?;
        wait_for_sockets(&guest.plan, &context.stop)?;
    }
    stand_in.map_or(Ok(()), |mut stand_in| stand_in.forwarder.stop())
}

/// Returns an element that this machine does not support, and the reason, as far as it is known without starting or building.
#[must_use]
pub fn lacking(graph: &Graph, quietwire: &Path) -> Option<(String, Unavailable)> {
    let of_elements = || lacking_element(graph, quietwire);
    cards::lacking(Path::new("/"), graph).or_else(of_elements)
}

fn lacking_element(graph: &Graph, quietwire: &Path) -> Option<(String, Unavailable)> {
    graph.elements.iter().find_map(|element| {
        let reason = match (element.role, element.place) {
            (Role::Tester, _) => None,
            (_, ElementPlace::Guest) => Hypervisor::lacking(),
            _ => forwarder_for(element.program, quietwire).probe().err(),
        };
        Some((element.name.clone(), reason?))
    })
}

fn wait_for_sockets(plan: &Plan, stop: &Stop) -> Result<(), LabError> {
    for socket in plan.own_sockets() {
        let is_over = wait_until(SOCKETS_DEADLINE, || socket.exists() || stop.is_wanted());
        stop.check()?;
        if !is_over {
            let what = format!("created no socket {} within 20 s", socket.display());
            return Err(plan.failed(what));
        }
    }
    Ok(())
}
