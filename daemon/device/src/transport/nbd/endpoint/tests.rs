use super::*;
use std::os::unix::fs::PermissionsExt;

#[tokio::test]
async fn a_socket_is_private_from_the_start_and_goes_with_its_server() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let listener = Listener::bind(&Endpoint::Unix(path.clone()), false).unwrap();
    assert_eq!(
        std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );
    assert_eq!(
        std::fs::read_dir(folder.path()).unwrap().count(),
        1,
        "the lock is gone"
    );
    drop(listener);
    assert!(!path.exists());
}

#[tokio::test]
async fn a_lock_on_the_folder_holds_nobody_up() {
    let folder = tempfile::tempdir().unwrap();
    let open = std::fs::File::open(folder.path()).unwrap();
    let _lock = nix::fcntl::Flock::lock(open, nix::fcntl::FlockArg::LockExclusive).unwrap();
    Listener::bind(&Endpoint::Unix(folder.path().join("s")), false).unwrap();
}

#[tokio::test]
async fn a_stale_socket_is_taken_over_and_a_live_one_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists(), "std leaves the file behind");
    let _live = Listener::bind(&Endpoint::Unix(path.clone()), false).unwrap();
    let error = Listener::bind(&Endpoint::Unix(path.clone()), false).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    assert!(error.to_string().contains("another server"), "{error}");
}

#[tokio::test]
async fn what_is_not_a_socket_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("precious");
    std::fs::write(&path, "data").unwrap();
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    for path in [&path, &link] {
        let error = Listener::bind(&Endpoint::Unix(path.clone()), false).unwrap_err();
        assert!(error.to_string().contains("not a socket"), "{error}");
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "data");
}

#[tokio::test]
async fn a_successor_s_socket_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let listener = Listener::bind(&Endpoint::Unix(path.clone()), false).unwrap();
    std::fs::remove_file(&path).unwrap();
    let _successor = std::os::unix::net::UnixListener::bind(&path).unwrap();
    drop(listener);
    assert!(path.exists());
}

#[tokio::test]
async fn a_passed_socket_is_taken_as_it_is_and_its_file_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let passed = || Listening::Unix(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let listener = Listener::adopt(passed(), false).unwrap();
    assert_eq!(listener.endpoint().unwrap(), Endpoint::Unix(path.clone()));
    drop(listener);
    assert!(path.exists());
    let everywhere = || Listening::Tcp(std::net::TcpListener::bind("0.0.0.0:0").unwrap());
    assert!(
        Listener::adopt(everywhere(), false)
            .unwrap_err()
            .to_string()
            .contains("needs TLS")
    );
    Listener::adopt(everywhere(), true).unwrap();
}

#[tokio::test]
async fn beyond_loopback_only_with_tls() {
    let everywhere = Endpoint::Tcp("0.0.0.0:0".parse().unwrap());
    let error = Listener::bind(&everywhere, false).unwrap_err();
    assert!(error.to_string().contains("needs TLS"), "{error}");
    Listener::bind(&everywhere, true).unwrap();
}
