//! Quotas of served volumes, for commands.
//!
//! Promises: a change that was answered is durable.

use crate::error::{Done, Error, ErrorKind};
use crate::served::ServedVolume;
use crate::tasks::Tasks;
use crate::volumes::Volumes;
use std::rc::Rc;
use std::time::Duration;
use types::{Sid, VolumeId};
use volume::fs::{FileSystem, FsError, QuotaLimits, QuotaSettings, QuotaUser};

/// Most users in one answer: one turn of the loop describes them.
const USERS_MAX: usize = 10_000;
/// Rest before a change that waits for metadata is retried.
const REST: Duration = Duration::from_millis(1);

/// The quotas of a volume.
#[derive(Debug, Clone)]
pub struct QuotaReport {
    /// Mode and default limits of the volume.
    pub settings: QuotaSettings,
    /// Whether files are still being counted, so that no limit applies although quotas are on.
    pub is_counting: bool,
    /// Users, by rising identifier; at most 10,000.
    pub users: Vec<QuotaUser>,
    /// Whether there are more users than listed.
    pub is_truncated: bool,
}

/// Shows and changes quotas.
#[derive(Clone)]
pub struct VolumeQuotas {
    pub(crate) tasks: Rc<Tasks>,
    pub(crate) volumes: Rc<Volumes>,
}

impl VolumeQuotas {
    /// Lists the quotas of `user`, known or not, or of all users.
    ///
    /// # Errors
    /// `NotFound`; `Unavailable` if the volume is not served.
    pub fn report(&self, volume: VolumeId, user: Option<&Sid>) -> Done<QuotaReport> {
        let served = self.volumes.served_for(volume)?;
        Ok(served.with(|service| {
            let fs = service.file_system();
            let (settings, is_counting) = fs.quota_settings();
            let mut users = match user {
                Some(user) => vec![fs.quota_user(user)],
                None => fs.quota_users(None, USERS_MAX + 1),
            };
            let is_truncated = users.len() > USERS_MAX;
            users.truncate(USERS_MAX);
            QuotaReport { settings, is_counting, users, is_truncated }
        }))
    }

    /// Changes mode and defaults by `change`.
    ///
    /// # Errors
    /// `NotFound`; `Unavailable` if the volume is not served or takes no changes.
    pub async fn set_settings(&self, volume: VolumeId, change: impl Fn(&mut QuotaSettings)) -> Done<()> {
        self.change(volume, |fs| {
            let mut settings = fs.quota_settings().0;
            change(&mut settings);
            fs.set_quota_settings(settings)
        })
        .await
    }

    /// Sets a user's limits, or removes them: then the volume's defaults apply.
    ///
    /// # Errors
    /// As [`VolumeQuotas::set_settings`].
    pub async fn set_limits(&self, volume: VolumeId, user: &Sid, limits: Option<QuotaLimits>) -> Done<()> {
        let now = self.tasks.wall_clock();
        self.change(volume, |fs| fs.set_quota_limits(user, limits, now)).await
    }

    async fn change(
        &self,
        volume: VolumeId,
        mut change: impl FnMut(&mut FileSystem) -> Result<(), FsError>,
    ) -> Done<()> {
        let served: ServedVolume = self.volumes.served_for(volume)?;
        let failed =
            |why: String| Error::new(ErrorKind::Unavailable, format!("quotas were not changed: {why}"));
        loop {
            if !self.volumes.is_served(volume) {
                return Err(failed("the volume is not served any more".to_owned()));
            }
            match served.with_mut(|service| change(service.file_system_mut())) {
                Ok(()) => break,
                Err(FsError::Miss) => self.tasks.rest(REST).await,
                Err(why) => return Err(failed(why.to_string())),
            }
        }
        let durable = served.make_durable(|| !self.volumes.is_served(volume)).await;
        durable.map_err(|status| failed(format!("{status:?}")))
    }
}
