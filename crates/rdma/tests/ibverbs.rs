//! The provider by libibverbs, over the first RDMA device that is up and has an address: a connection of the device to itself.
//! Without such a device each test says why it does not run. `tests/guest/verbs.sh` runs them on siw and rxe.
//! CENOTE_VERBS_DEVICE names another device; CENOTE_VERBS_REQUIRED makes its absence a failure.

mod conformance;

use conformance::{Bench, conformance};
use rdma::ibverbs::{IbverbsOptions, IbverbsProvider};
use rdma::iwarp::{IwarpOptions, IwarpProvider};
use rdma::providers::Providers;
use rdma::{CloseReason, Device, PortState, Verbs};
use std::io::ErrorKind;
use std::net::SocketAddr;
use sys::driver::{Driver, DriverChoice};

/// A device to use, or why there is none.
fn device() -> Result<Device, String> {
    let wanted = std::env::var("CENOTE_VERBS_DEVICE").ok();
    let up = |device: &Device| {
        !device.addresses.is_empty()
            && device.ports.iter().any(|port| port.state == PortState::Active)
            && wanted.as_ref().is_none_or(|name| *name == device.name)
    };
    rdma::devices()?
        .into_iter()
        .find(up)
        .ok_or_else(|| "no RDMA device of that name is up and has an address".to_owned())
}

fn on_device(run: impl Fn(Bench<Providers>)) {
    with_address(|bench, _| run(bench));
}

fn with_address(run: impl Fn(Bench<Providers>, SocketAddr)) {
    let device = match device() {
        Ok(device) => device,
        Err(reason) => {
            assert!(std::env::var_os("CENOTE_VERBS_REQUIRED").is_none(), "{reason}");
            println!("skipped: {reason}");
            return;
        }
    };
    let mut ran = 0;
    for choice in [DriverChoice::IoUring, DriverChoice::Fallback] {
        let Ok(driver) = Driver::new(choice) else { continue };
        let mut provider =
            IbverbsProvider::new(&driver, IbverbsOptions::default()).expect("the device can be used");
        let listening =
            provider.listen(SocketAddr::new(device.addresses[0], 0)).expect("the address is the device's");
        assert_eq!((&listening.device, listening.transport), (&device.name, device.transport));
        let address = listening.address;
        let begin = move |providers: &mut Providers, private_data: &[u8], now| {
            providers.connect_by_device(address, private_data, now).expect("leads to the device")
        };
        let counts = |providers: &Providers| {
            let devices = providers.devices.as_ref().expect("is there");
            (devices.queue_pair_count(), devices.registered_count())
        };
        let iwarp = IwarpProvider::new(&driver, IwarpOptions::default(), Box::new(|| 4));
        let providers = Providers::new(iwarp, Some(provider));
        run(Bench::new(driver, providers, Box::new(begin), counts), address);
        ran += 1;
    }
    assert!(ran > 0, "no backend works here");
}

conformance!(on_device);

#[test]
fn a_port_where_nobody_listens_refuses() {
    with_address(|mut bench, mut address| {
        address.set_port(if address.port() == 9 { 10 } else { 9 });
        let now = bench.now();
        let client = bench.subject.connect_by_device(address, b"", now).expect("leads to the device");
        bench.until("end", |bench| !bench.disconnected.is_empty());
        let refused = CloseReason::Network(ErrorKind::ConnectionRefused);
        assert_eq!(bench.disconnected, vec![(client, refused)]);
        assert_eq!(bench.counts(), (0, 0));
    });
}

#[test]
fn a_request_that_nobody_answers_is_refused_in_time() {
    with_address(|mut bench, _| {
        let client = bench.begin(b"");
        bench.until("end", |bench| bench.disconnected.len() == 2);
        let reason = bench.disconnected.iter().find(|(queue_pair, _)| *queue_pair == client);
        assert_eq!(reason.map(|(_, reason)| reason), Some(&CloseReason::Rejected));
        assert_eq!(bench.counts(), (0, 0));
    });
}

#[test]
fn an_address_of_no_rdma_device_is_not_listened_on() {
    with_address(|mut bench, _| {
        let elsewhere: SocketAddr = "192.0.2.1:0".parse().expect("an address");
        let devices = bench.subject.devices.as_mut().expect("is there");
        assert!(devices.listen(elsewhere).is_err());
    });
}

#[test]
fn the_provider_says_why_where_there_is_no_device() {
    let driver = Driver::new(DriverChoice::Automatic).expect("a loop");
    match (rdma::devices(), IbverbsProvider::new(&driver, IbverbsOptions::default())) {
        (Ok(devices), Ok(mut provider)) => {
            assert!(!devices.is_empty());
            assert_eq!(provider.info(rdma::QueuePairId(1)), None);
            provider.disconnect(rdma::QueuePairId(1));
        }
        (Err(reason), Err(same)) => assert_eq!(reason, same),
        (devices, provider) => panic!("{devices:?}, but the provider: {}", provider.is_ok()),
    }
}
