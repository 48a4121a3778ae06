//! The RDMA providers of the data plane: iWARP in software, and any devices.

use crate::control::CommandError;
use crate::limits::Limits;
use crate::rdma_devices::RdmaDevices;
use rdma::ibverbs::{IbverbsOptions, IbverbsProvider};
use rdma::iwarp::{CrcPolicy, IwarpOptions, IwarpProvider, Shape};
use rdma::providers::Providers;
use std::net::{SocketAddr, TcpListener};
use sys::driver::Driver;

/// Opens both providers, listening, and returns the software's addresses. A device that cannot be
/// listened on becomes a health issue.
pub(super) fn open(
    driver: &Driver,
    limits: &Limits,
    listeners: Vec<TcpListener>,
    is_crc_optional: bool,
    wanted: &mut RdmaDevices,
) -> Result<(Providers, Vec<SocketAddr>), CommandError> {
    // As many again may be being established, so that these never take the places of established ones.
    let queue_pairs_max = 2 * limits.connections as usize;
    let crc = if is_crc_optional { CrcPolicy::OffUnlessAsked } else { CrcPolicy::On };
    let options = IwarpOptions {
        crc,
        queue_pairs_max,
        receive_shape: Some(|first| {
            let smbdirect::TransferShape { len_bytes, payload_at } = smbdirect::transfer_shape(first)?;
            Some(Shape { len_bytes, aligned_at: payload_at })
        }),
        tells_sent_together: true,
        ..IwarpOptions::default()
    };
    let mut iwarp = IwarpProvider::new(driver, options, rdma::random_names());
    let mut addresses = Vec::with_capacity(listeners.len());
    for listener in listeners {
        let address = iwarp
            .listen(listener)
            .map_err(|error| CommandError::io(format!("an SMB Direct listener cannot be served: {error}")))?;
        addresses.push(address);
    }
    let devices = if wanted.listen.is_empty() {
        None
    } else {
        let options = IbverbsOptions { queue_pairs_max, ..IbverbsOptions::default() };
        match IbverbsProvider::new(driver, options) {
            Ok(mut provider) => {
                for address in &wanted.listen {
                    listen(&mut provider, *address, &mut wanted.refused);
                }
                Some(provider)
            }
            Err(reason) => {
                tracing::warn!("no SMB Direct by RDMA devices: {reason}");
                wanted.refused.push(reason);
                None
            }
        }
    };
    Ok((Providers::new(iwarp, devices), addresses))
}

fn listen(provider: &mut IbverbsProvider, address: SocketAddr, refused: &mut Vec<String>) {
    match provider.listen(address) {
        Ok(listening) => tracing::info!(
            address = %listening.address,
            device = listening.device,
            transport = ?listening.transport,
            "SMB Direct by an RDMA device"
        ),
        Err(error) => {
            tracing::warn!(%address, %error, "no SMB Direct by an RDMA device");
            refused.push(format!("{address} cannot be listened on: {error}"));
        }
    }
}
