//! Devices' reports of themselves, in the list of disks and in health.

use super::Manager;
use crate::config::Config;
use crate::control::NewDisk;
use api::model::{DeviceHealth, DiskStatus, Health, HealthIssue, Snapshot};
use api::{ApiError, ErrorKind, Role};
use machine::places::{Directories, PlaceError, PlaceErrorKind, leads_to};
use machine::prediction::predicted_failure;
use machine::smart::DeviceReport;
use records::clock::unix_now_s;
use std::path::{Path, PathBuf};

impl Manager {
    /// Refuses new disks in places forbidden to `role`, or already this server's. Else returns all, by the
    /// paths to use.
    pub(super) async fn admit_disks(
        &self,
        mut disks: Vec<NewDisk>,
        role: Role,
    ) -> Result<Vec<NewDisk>, ApiError> {
        let places = disks.iter().map(|disk| (disk.path.clone(), disk.create_size_bytes.is_some()));
        let paths = self.demand_places(places.collect(), role).await?;
        self.demand_no_disk_of_ours(paths.clone()).await?;
        for (disk, path) in disks.iter_mut().zip(paths) {
            disk.path = path;
        }
        Ok(disks)
    }

    /// Refuses paths forbidden to `role`. Each path has a flag: whether a file may be made there. Else
    /// returns all paths to use.
    pub(super) async fn demand_places(
        &self,
        paths: Vec<(PathBuf, bool)>,
        role: Role,
    ) -> Result<Vec<PathBuf>, ApiError> {
        let places = self.in_effect.get(Config::disk_places);
        let allowed = if role < Role::Administrator { Directories::Named } else { Directories::Any };
        let looked = tokio::task::spawn_blocking(move || {
            let checked = paths.iter().map(|(path, is_new)| places.check(path, *is_new, allowed));
            checked.map(|place| place.map_err(refused_place)).collect()
        });
        looked.await.map_err(|_| ApiError::new(ErrorKind::Internal, "the look was interrupted"))?
    }

    /// Refuses disks that this server has already, by any path: opening one would only fail as in use. A
    /// lost disk may have a successor at its path.
    async fn demand_no_disk_of_ours(&self, paths: Vec<PathBuf>) -> Result<(), ApiError> {
        let snapshot = self.look().await?;
        let disks: Vec<(String, String)> = snapshot
            .disks
            .iter()
            .filter(|disk| disk.status != DiskStatus::LostCommunication)
            .map(|disk| {
                let pool = snapshot.pools.iter().find(|pool| Some(pool.id) == disk.pool);
                (disk.path.clone(), pool.map_or_else(|| "none".to_owned(), |pool| pool.name.clone()))
            })
            .collect();
        // A path may lead through a file system that is slow.
        let looked = tokio::task::spawn_blocking(move || {
            paths.iter().find_map(|path| {
                let (_, pool) = disks.iter().find(|(ours, _)| leads_to(path, Path::new(ours)))?;
                Some(format!(
                    "{} is a disk of pool '{pool}' of this server already; `cenote disk list` shows those there are",
                    path.display()
                ))
            })
        });
        let looked =
            looked.await.map_err(|_| ApiError::new(ErrorKind::Internal, "the look was interrupted"))?;
        looked.map_or(Ok(()), |why| Err(ApiError::new(ErrorKind::Conflict, why)))
    }

    /// Adds to each disk its device's report, and an issue if that predicts its failure.
    pub(super) fn tell_devices(&self, snapshot: &mut Snapshot) {
        for disk in &mut snapshot.disks {
            let report = self.devices.of(&disk.path);
            disk.device_health = report.map(show_report);
            let issue =
                report.and_then(|report| predicted_failure(disk.id, &disk.path, &report, unix_now_s()));
            if issue.is_some() {
                disk.health = disk.health.max(Health::Warning);
            }
            snapshot.health.issues.extend(issue.map(HealthIssue::from));
        }
    }
}

/// A refused place in the API's words.
pub(super) fn refused_place(refused: PlaceError) -> ApiError {
    let PlaceError { kind, message } = refused;
    match kind {
        PlaceErrorKind::Missing => ApiError::new(ErrorKind::NotFound, message),
        PlaceErrorKind::Unfit => ApiError::new(ErrorKind::Invalid, message),
        PlaceErrorKind::NotNamed => {
            let needed = format!("{message}: this needs the role {}", Role::Administrator);
            ApiError::new(ErrorKind::Forbidden, needed)
        }
    }
}

fn show_report(report: DeviceReport) -> DeviceHealth {
    let DeviceReport {
        passed,
        used_percent,
        spare_percent,
        spare_threshold_percent,
        written_bytes,
        media_errors,
    } = report;
    DeviceHealth { passed, used_percent, spare_percent, spare_threshold_percent, written_bytes, media_errors }
}
