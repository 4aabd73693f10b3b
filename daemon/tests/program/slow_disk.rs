//! A host whose disk takes half a second for every sync: requests that do not need the sync do not
//! wait for it.

use crate::host::{get, metric, page};
use ftld::live_page::{PageSource, PageState};
use ftld::metrics::{hosts::Hosts, http};
use ftld_device::config::{Config, Latency};
use ftld_device::device::BlockDevice;
use ftld_device::instance::Dirs;
use ftld_device::options::{DeviceArgs, DeviceOptions};
use ftld_device::service_counters::ServiceCounters;
use ftld_device::stack;
use ftld_device::status::{InstanceInfo, StatusSnapshot, StatusSource};
use ftld_device::target::Target;
use ftld_device::transport::{self, Context, StopHow};
use ftld_device::volume::{BlockMap, EventsView, Volume};
use ftld_nbd_client::{ACK, Client, FLUSH, go_data};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

struct Observer {
    volume: Arc<Volume>,
    facts: Arc<InstanceInfo>,
    page: PageState,
    service: ServiceCounters,
}

impl StatusSource for Observer {
    fn view(&self) -> StatusSnapshot {
        StatusSnapshot {
            facts: self.facts.clone(),
            host: self.volume.host(),
            flash: self.volume.flash(),
            flash_by_shard: self.volume.flash_by_shard(),
            nbd: Default::default(),
            service: self.service.view(),
            injected: self.volume.injected(),
            faults: Vec::new(),
            failure: self.volume.failure(),
            writes_failing: self.volume.writes_failing(),
            paused: self.volume.paused(),
            recording: None,
            shadows: Vec::new(),
            waiting_for: Vec::new(),
        }
    }
    fn service(&self) -> &ServiceCounters {
        &self.service
    }
    fn watch(&self) {}
    fn blocks(&self) -> Arc<BlockMap> {
        self.volume.blocks()
    }
    fn events(&self, from: u64, most: usize) -> EventsView {
        self.volume.events(from, most)
    }
}

impl PageSource for Observer {
    fn page(&self) -> &PageState {
        &self.page
    }
}

fn connect(socket: &Path) -> Client {
    let mut client = Client::hello(socket);
    assert_eq!(client.option(7, &go_data("", &[])).last().unwrap().0, ACK);
    client
}

#[test]
fn reads_and_metrics_go_on_while_a_flush_waits_for_a_slow_disk() {
    let folder = tempfile::tempdir().unwrap();
    let below = |part: &str| folder.path().join(part);
    let dirs = Dirs {
        config: below("etc"),
        state: below("state"),
        runtime: below("run"),
    };
    let (profile, size) = (Some("torture".into()), Some("2MiB".into()));
    let options = DeviceOptions {
        profile,
        size,
        ..DeviceOptions::default()
    };
    let config = Config::new(
        &DeviceArgs {
            options,
            ..DeviceArgs::default()
        },
        &dirs,
    )
    .unwrap();
    let stack = stack::open_or_create(&config).unwrap();
    stack.sync.set_sync_delay(Duration::from_millis(500));
    let volume = Arc::new(stack.volume);
    let socket = below("nbd.sock");
    let target = Target::parse(&format!("nbd+unix:///?socket={}", socket.display())).unwrap();
    let context = Context {
        name: "default",
        image: "",
        tls: None,
    };
    let service = transport::start(&target, None, volume.clone(), context).unwrap();
    let listener = http::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let addr = listener.local_addr().unwrap().to_string();
    let facts = InstanceInfo {
        name: "default".into(),
        target: service.target(),
        transport: "nbd",
        image: config.image.clone(),
        scheme: stack.scheme,
        profile: stack.profile,
        shards: 1,
        size: volume.size(),
        logical_bytes: stack.logical_bytes,
        metrics: None,
        read_only: false,
        latency: Latency::None,
        verify: config.verify,
        started: SystemTime::now(),
        opened_in: Duration::ZERO,
        power_cut: false,
        uuid: [7; 16],
        was_clean: stack.was_clean,
    };
    let observer = Arc::new(Observer {
        page: PageState::default(),
        volume: volume.clone(),
        facts: Arc::new(facts),
        service: ServiceCounters::default(),
    });
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    runtime.spawn(http::serve(listener, observer, Arc::new(Hosts::default())));

    let (mut writer, mut reader) = (connect(&socket), connect(&socket));
    assert_eq!(writer.write(0, 0, &page(3)).error, 0);
    let flush = writer.request(FLUSH, 0, 0, 0, &[]);
    while metric(
        &addr,
        "ftld_host_ios_in_flight{device=\"default\",op=\"flush\"}",
    ) == 0.0
    {}
    assert!(reader.read(0, 4096).data == page(3));
    assert_eq!(reader.write(0, 8192, &page(4)).error, 0);
    assert_eq!(get(&addr, "/healthz").1, "serving\n");
    // Had anything above waited for the sync, the flush would be done.
    assert_eq!(
        metric(
            &addr,
            "ftld_host_ios_in_flight{device=\"default\",op=\"flush\"}"
        ),
        1.0
    );
    assert_eq!(writer.answer(flush, 0).error, 0);
    assert_eq!(
        metric(
            &addr,
            "ftld_host_ios_total{device=\"default\",op=\"flush\"}"
        ),
        1.0
    );
    drop((writer, reader));
    service.stop(StopHow::Remove).unwrap();
    runtime.shutdown_background();
    stack::close_stores(volume.close().unwrap()).unwrap();
}
