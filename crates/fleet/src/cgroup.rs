//! Control groups of workers: processors and memory held to a template, by version 2 of the kernel's interface, else by version 1.
//!
//! Promises: groups are removed when they are dropped; if none can be made, workers run without, and
//! the reason is reported.

use crate::state::Template;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const ROOT: &str = "/sys/fs/cgroup";
/// Length of the period in which processor time is given out.
const PERIOD_US: u64 = 100_000;
/// The kernel takes no quota below this.
const QUOTA_US_MIN: u64 = 1000;

/// Which interface the machine has, with the directories that groups are made in.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Interface {
    Unified(PathBuf),
    /// Directories of the controllers cpu and memory.
    Legacy {
        cpu: PathBuf,
        memory: PathBuf,
    },
}

/// The groups of one run on this machine.
pub struct Groups {
    interface: Interface,
    /// All directories that were made, the inner ones last.
    made: Vec<PathBuf>,
}

impl Groups {
    /// Makes a parent for groups of this name.
    ///
    /// # Errors
    /// Why workers cannot be held to anything here.
    pub fn new(name: &str) -> Result<Self, String> {
        Self::new_below(Path::new(ROOT), name)
    }

    fn new_below(root: &Path, name: &str) -> Result<Self, String> {
        let interface = if root.join("cgroup.controllers").exists() {
            let parent = root.join(name);
            let failed =
                |error: io::Error| format!("control group {} could not be made: {error}", parent.display());
            // Controllers are handed down level by level; an administrator may have done so already.
            let _ = fs::write(root.join("cgroup.subtree_control"), "+cpu +memory");
            fs::create_dir(&parent).map_err(failed)?;
            if let Err(error) = fs::write(parent.join("cgroup.subtree_control"), "+cpu +memory") {
                let _ = fs::remove_dir(&parent);
                return Err(format!("control group {} has no controllers: {error}", parent.display()));
            }
            Interface::Unified(parent)
        } else {
            let (cpu, memory) = (root.join("cpu").join(name), root.join("memory").join(name));
            for (controller, made) in [(&cpu, None), (&memory, Some(&cpu))] {
                if let Err(error) = fs::create_dir(controller) {
                    if let Some(made) = made {
                        let _ = fs::remove_dir(made);
                    }
                    return Err(format!("control group {} could not be made: {error}", controller.display()));
                }
            }
            Interface::Legacy { cpu, memory }
        };
        let made = match &interface {
            Interface::Unified(parent) => vec![parent.clone()],
            Interface::Legacy { cpu, memory } => vec![cpu.clone(), memory.clone()],
        };
        Ok(Self { interface, made })
    }

    /// Puts a process into a group of its own, with the template's resources for `workers` workers.
    ///
    /// # Errors
    /// The reason why not; the process runs without a group.
    pub fn hold(&mut self, number: usize, pid: u32, template: Template, workers: u32) -> Result<(), String> {
        let quota = quota_us(template, workers);
        let memory_bytes = template.memory_bytes.saturating_mul(u64::from(workers));
        let group = format!("worker-{number}");
        let files: Vec<(PathBuf, Vec<(&str, String)>)> = match &self.interface {
            Interface::Unified(parent) => vec![(
                parent.join(&group),
                vec![
                    ("cpu.max", format!("{quota} {PERIOD_US}")),
                    ("memory.max", memory_bytes.to_string()),
                    ("cgroup.procs", pid.to_string()),
                ],
            )],
            Interface::Legacy { cpu, memory } => vec![
                (
                    cpu.join(&group),
                    vec![
                        ("cpu.cfs_period_us", PERIOD_US.to_string()),
                        ("cpu.cfs_quota_us", quota.to_string()),
                        ("cgroup.procs", pid.to_string()),
                    ],
                ),
                (
                    memory.join(&group),
                    vec![
                        ("memory.limit_in_bytes", memory_bytes.to_string()),
                        ("cgroup.procs", pid.to_string()),
                    ],
                ),
            ],
        };
        for (directory, values) in files {
            let failed = |error: io::Error| format!("{}: {error}", directory.display());
            fs::create_dir(&directory).map_err(failed)?;
            self.made.push(directory.clone());
            for (file, value) in values {
                fs::write(directory.join(file), value).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// Names the mechanism that holds the workers.
    pub const fn describe(&self) -> &'static str {
        match &self.interface {
            Interface::Unified(_) => "control groups (version 2)",
            Interface::Legacy { .. } => "control groups (version 1)",
        }
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        for directory in self.made.iter().rev() {
            // The kernel keeps a group busy for a moment after its process has ended.
            for _ in 0..20 {
                if fs::remove_dir(directory).is_ok() || !directory.exists() {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        }
    }
}

/// Microseconds of processor time in a period.
fn quota_us(template: Template, workers: u32) -> u64 {
    let quota = template.vcpus.clamp(0.01, 1024.0) * f64::from(workers) * PERIOD_US as f64;
    (quota as u64).max(QUOTA_US_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEMPLATE: Template = Template { vcpus: 1.0, memory_bytes: 2 << 30 };

    fn read(path: PathBuf) -> String {
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    #[test]
    fn version_2_gets_one_group_with_both_limits() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("cgroup.controllers"), "cpu memory").unwrap();
        let mut groups = Groups::new_below(root.path(), "fleet-1").unwrap();
        groups.hold(3, 77, TEMPLATE, 11).unwrap();
        let group = root.path().join("fleet-1/worker-3");
        assert_eq!(read(group.join("cpu.max")), "1100000 100000");
        assert_eq!(read(group.join("memory.max")), (22_u64 << 30).to_string());
        assert_eq!(read(group.join("cgroup.procs")), "77");
        assert_eq!(read(root.path().join("fleet-1/cgroup.subtree_control")), "+cpu +memory");
        assert!(groups.describe().contains("version 2"));
    }

    #[test]
    fn version_1_gets_a_group_of_each_controller() {
        let root = tempfile::tempdir().unwrap();
        for controller in ["cpu", "memory"] {
            fs::create_dir(root.path().join(controller)).unwrap();
        }
        let mut groups = Groups::new_below(root.path(), "fleet-1").unwrap();
        groups.hold(0, 77, Template { vcpus: 0.5, ..TEMPLATE }, 1).unwrap();
        assert_eq!(read(root.path().join("cpu/fleet-1/worker-0/cpu.cfs_quota_us")), "50000");
        assert_eq!(
            read(root.path().join("memory/fleet-1/worker-0/memory.limit_in_bytes")),
            (2_u64 << 30).to_string()
        );
        assert_eq!(read(root.path().join("memory/fleet-1/worker-0/cgroup.procs")), "77");
    }

    #[test]
    fn without_either_the_reason_is_told() {
        let root = tempfile::tempdir().unwrap();
        let Err(why) = Groups::new_below(root.path(), "fleet-1") else { panic!() };
        assert!(why.contains("could not be made"), "{why}");
        assert!(fs::read_dir(root.path()).unwrap().next().is_none(), "nothing is left behind");
    }
}
