// SPDX-License-Identifier: Apache-2.0
//! Classes of service of a plan as resctrl groups: ways, bandwidth and CPUs. Running forwarding threads move to the class of
//! their CPU, because a thread in another group would use that group's ways on every CPU.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use quietwire_base::ProcessId;

use super::outcome::Difference;
use super::target::Target;
use crate::CpuList;
use crate::journal::Journal;
use crate::partition::{Class, Plan};
use crate::resctrl::{Resctrl, Schemata};
use crate::tasks;

/// A class of service to create. The default class has no name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassStep {
    resctrl: Resctrl,
    name: String,
    schemata: Schemata,
    cpus: Option<CpuList>,
}

/// Moves forwarding threads to the class of their CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassTasksStep {
    resctrl: Resctrl,
    classes: Vec<Class>,
}

/// Returns the steps for all classes. The default class comes last, so no task has less than its final share before.
pub(super) fn steps(target: &Target<'_>, plan: &Plan) -> (Vec<ClassStep>, Option<ClassTasksStep>) {
    let Some(resctrl) = Resctrl::find(target.files, &target.root) else {
        return (Vec::new(), None);
    };
    let caches = resctrl.info(target.files).caches;
    let mut classes: Vec<_> = plan.classes.iter().collect();
    classes.sort_by_key(|class| class.is_default);
    let class = |class: &Class| {
        let mut schemata = Schemata::default();
        for mask in &class.masks {
            // With CDP, code and data have separate masks. Both get the same ways.
            let plain = format!("L{}", mask.level);
            for resource in caches.keys().filter(|name| name.starts_with(&plain)) {
                schemata.set(resource, mask.domain, mask.mask);
            }
        }
        for bandwidth in &class.bandwidth {
            schemata.set("MB", bandwidth.domain, u64::from(bandwidth.limit));
        }
        ClassStep {
            resctrl: resctrl.clone(),
            name: directory_of(class),
            schemata,
            cpus: (!class.is_default).then(|| class.cpus.clone()),
        }
    };
    let tasks = (!plan.classes.is_empty()).then(|| ClassTasksStep {
        resctrl: resctrl.clone(),
        classes: plan.classes.clone(),
    });
    (classes.into_iter().map(class).collect(), tasks)
}

/// Returns the directory of a class. The default class is the mount point itself.
fn directory_of(class: &Class) -> String {
    if class.is_default {
        String::new()
    } else {
        class.name.clone()
    }
}

impl ClassStep {
    pub(super) fn places(&self) -> Vec<PathBuf> {
        if self.name.is_empty() {
            vec![self.resctrl.mount.join("schemata")]
        } else {
            vec![self.resctrl.group(&self.name)]
        }
    }

    pub(super) fn difference(&self, target: &Target<'_>) -> Option<Difference> {
        let place = self.resctrl.group(&self.name);
        let rounded = self.schemata.rounded(&self.resctrl.info(target.files));
        let wanted = self.describe(&rounded, self.cpus.as_ref());
        let groups = match self.resctrl.groups(target.files) {
            Ok(groups) => groups,
            Err(error) => {
                return Some(Difference {
                    place,
                    now: error.to_string(),
                    wanted,
                });
            }
        };
        let now = groups.iter().find(|group| group.name == self.name);
        let now = now.map(|group| {
            let cpus = self.cpus.is_some().then_some(&group.cpus);
            self.describe(&group.schemata.restricted_to(&self.schemata), cpus)
        });
        let now = now.unwrap_or_else(|| "missing".to_owned());
        (now != wanted).then_some(Difference { place, now, wanted })
    }

    fn describe(&self, schemata: &Schemata, cpus: Option<&CpuList>) -> String {
        let mut text: Vec<String> = schemata.to_string().lines().map(str::to_owned).collect();
        text.extend(cpus.map(|cpus| format!("CPUs {cpus}")));
        text.join(" ")
    }

    pub(super) fn make(&self, target: &Target<'_>, journal: &mut Journal) -> io::Result<()> {
        let (files, resctrl) = (target.files, &self.resctrl);
        if !self.name.is_empty() {
            resctrl.create(files, journal, &self.name)?;
        }
        if !self.schemata.0.is_empty() {
            resctrl.set_schemata(files, journal, &self.name, &self.schemata)?;
        }
        if let Some(cpus) = &self.cpus {
            resctrl.set_cpus(files, journal, &self.name, cpus)?;
        }
        Ok(())
    }
}

impl ClassTasksStep {
    pub(super) fn places(&self) -> Vec<PathBuf> {
        let directories = self.classes.iter().map(directory_of);
        directories
            .map(|name| self.resctrl.group(&name).join("tasks"))
            .collect()
    }

    /// Returns the forwarding threads that are not in the class of their CPU, by the class's directory.
    fn elsewhere(&self, target: &Target<'_>) -> io::Result<BTreeMap<String, Vec<ProcessId>>> {
        let groups = self.resctrl.groups(target.files)?;
        let mut found: BTreeMap<String, Vec<ProcessId>> = BTreeMap::new();
        for task in tasks::all(&target.root) {
            if task.forwards_for.is_none() || task.cpus.is_empty() {
                continue;
            }
            let mut classes = self.classes.iter();
            let class = classes.find(|class| task.cpus.difference(&class.cpus).is_empty());
            let Some(name) = class.map(directory_of) else {
                continue;
            };
            let is_in = groups
                .iter()
                .any(|group| group.name == name && group.tasks.contains(&task.tid));
            if !is_in {
                found
                    .entry(name)
                    .or_default()
                    .extend(ProcessId::of(task.tid));
            }
        }
        found.retain(|_, tasks| !tasks.is_empty());
        Ok(found)
    }

    pub(super) fn differences(&self, target: &Target<'_>) -> Vec<Difference> {
        let wanted = "all forwarding threads of its CPUs";
        let found = match self.elsewhere(target) {
            Ok(found) => found,
            Err(error) => {
                return vec![Difference {
                    place: self.resctrl.mount.clone(),
                    now: error.to_string(),
                    wanted: format!("in each class {wanted}"),
                }];
            }
        };
        found
            .into_iter()
            .map(|(class, tasks)| {
                let first = tasks.first().map_or(0, |task| task.pid);
                Difference {
                    place: self.resctrl.group(&class).join("tasks"),
                    now: format!(
                        "{} forwarding threads of its CPUs are in other classes, for example thread {first}",
                        tasks.len()
                    ),
                    wanted: wanted.to_owned(),
                }
            })
            .collect()
    }

    pub(super) fn make(
        &self,
        target: &Target<'_>,
        journal: &mut Journal,
        difference: &Difference,
    ) -> io::Result<()> {
        for (class, tasks) in self.elsewhere(target)? {
            let places = [
                self.resctrl.group(&class).join("tasks"),
                self.resctrl.mount.clone(),
            ];
            if places.contains(&difference.place) {
                let (files, resctrl) = (target.files, &self.resctrl);
                resctrl.move_tasks(files, journal, &class, &tasks)?;
            }
        }
        Ok(())
    }
}
