//! Arbitrary configuration files, devices, targets and sizes.
//!
//! Properties: the result is an error or a configuration within the documented bounds; a displayed
//! device or target parses to itself.

use ftld_device::config::Config;
use ftld_device::instance::Dirs;
use ftld_device::options::DeviceArgs;
use ftld_device::target::Target;
use ftld_kit::profile_file;
use ftld_kit::size::parse_size;
use tempfile::TempDir;

/// Parses the whole input as a file, and its first line as a target and as a size.
pub fn run(data: &[u8]) {
    thread_local!(static FOLDER: TempDir = tempfile::tempdir().expect("a temporary folder"));
    FOLDER.with(|folder| {
        let path = &folder.path().join("file.toml");
        std::fs::write(path, data).expect("room for a configuration file");
        let dirs = Dirs {
            config: "/config".into(),
            state: "/state".into(),
            runtime: "/run".into(),
        };
        let args = DeviceArgs {
            config: Some(path.clone()),
            ..DeviceArgs::default()
        };
        let Ok(config) = Config::new(&args, &dirs) else {
            return;
        };
        assert!(
            config
                .requirements
                .size
                .is_none_or(|size| size > 0 && size.is_multiple_of(4096))
        );
        assert!(
            config
                .requirements
                .op
                .is_none_or(|op| (0.1..=1000.0).contains(&op))
        );
        assert!(
            !config.name.is_empty() && !config.name.contains('/'),
            "instance {:?}",
            config.name
        );
        let open = config
            .target
            .as_ref()
            .and_then(Target::beyond_this_machine)
            .is_some();
        assert!(
            !open || config.tls.is_some_and(|tls| tls.required),
            "reachable without TLS"
        );
    });
    let text = String::from_utf8_lossy(data);
    if let Ok(device) = profile_file::from_toml(&text) {
        assert_eq!(device.validate(), Ok(()));
        let shown = profile_file::to_toml(&device);
        assert_eq!(profile_file::from_toml(&shown), Ok(device), "{shown}");
    }
    let line = text.lines().next().unwrap_or_default();
    let _ = parse_size(line);
    if let Ok(target) = Target::parse(line) {
        let shown = target.to_string();
        assert_eq!(
            Target::parse(&shown).ok(),
            Some(target),
            "{line:?} is shown as {shown:?}"
        );
    }
}
