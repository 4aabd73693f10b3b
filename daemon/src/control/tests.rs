use super::*;
use crate::metrics::tests::Still;
use serde_json::{Map, json};

#[tokio::test]
async fn every_line_is_counted_by_its_command() {
    let still = Arc::new(Still::default());
    let (asked, mut commands) = mpsc::channel(1);
    drop(tokio::spawn(async move {
        while commands.recv().await.is_some() {}
    }));
    let (server, mut client) = UnixStream::pair().unwrap();
    let served = connection(server, still.clone(), asked);
    let ask = async move {
        for line in [
            r#"{"command":"status"}"#,
            r#"{"command":"pause","action":"resume"}"#,
            r#"{"command":"stop"}"#,
            r#"{"command":"status"}"#,
            r#"{"command":"mark","text":"here"}"#,
            "stop",
        ] {
            client
                .write_all(format!("{line}\n").as_bytes())
                .await
                .unwrap();
        }
        client.shutdown().await.unwrap();
        let mut answers = String::new();
        client.read_to_string(&mut answers).await.unwrap();
        assert_eq!(answers.lines().count(), 6, "{answers}");
    };
    tokio::join!(async { served.await.unwrap() }, ask);
    assert_eq!(still.service.view().control, [2, 1, 0, 1, 1, 0, 0, 1]);
}

/// Starts a server on a pair of sockets with one client.
fn served() -> (
    UnixStream,
    impl Future<Output = std::io::Result<()>>,
    mpsc::Receiver<ControlCommand>,
) {
    let (asked, commands) = mpsc::channel(1);
    let (server, client) = UnixStream::pair().unwrap();
    let still: Arc<dyn StatusSource> = Arc::new(Still::default());
    (client, connection(server, still, asked), commands)
}

/// A daemon that stood still finds the commands of clients that have given up.
#[tokio::test]
async fn a_command_whose_client_has_left_is_not_executed() {
    let (mut client, server, mut commands) = served();
    client.write_all(b"{\"command\":\"stop\"}\n").await.unwrap();
    drop(client);
    let ended = tokio::time::timeout(Duration::from_secs(5), server).await;
    ended.expect("it waits for an answer").unwrap();
    assert!(commands.try_recv().is_err(), "it left before it was read");
    // One that only ended its requests waits for the answer.
    let (mut client, server, mut commands) = served();
    client.write_all(b"{\"command\":\"stop\"}\n").await.unwrap();
    client.shutdown().await.unwrap();
    let (served, command) = tokio::join!(server, async {
        let command = commands.recv().await.unwrap();
        assert!(!command.is_abandoned());
        let ControlCommand::Stop { answer, .. } = command else {
            panic!("a stop")
        };
        answer.send(Users::default()).unwrap();
    });
    let ((), ()) = (served.unwrap(), command);
    // One that leaves while its command waits for its turn.
    let (answer, told) = oneshot::channel();
    let command = ControlCommand::Stop {
        force: false,
        answer,
    };
    assert!(!command.is_abandoned());
    drop(told);
    assert!(command.is_abandoned());
}

/// Returns the socket of an instance.
fn instance() -> (tempfile::TempDir, Dirs, std::os::unix::net::UnixListener) {
    let folder = tempfile::tempdir().unwrap();
    let below = |part: &str| folder.path().join(part);
    let dirs = Dirs {
        config: below("etc"),
        state: below("state"),
        runtime: below("run"),
    };
    std::fs::create_dir_all(dirs.of("a")).unwrap();
    let listener = std::os::unix::net::UnixListener::bind(dirs.control("a")).unwrap();
    (folder, dirs, listener)
}

/// An instance that ends closes the connections that it has not answered yet.
#[test]
fn an_instance_that_ends_before_it_answers_is_not_running() {
    let (_folder, dirs, listener) = instance();
    let ends: [fn(std::os::unix::net::UnixStream); 4] = [
        // Before it reads: the client's write or read fails.
        drop,
        // With the request unread: a reset.
        |client| {
            std::thread::sleep(Duration::from_millis(20));
            drop(client);
        },
        |client| drop(BufReader::new(client).read_line(&mut String::new())),
        |mut client| {
            let mut reader = BufReader::new(client.try_clone().unwrap());
            reader.read_line(&mut String::new()).unwrap();
            client.write_all(b"{\"state\":").unwrap();
        },
    ];
    let requests = [
        Request::Status {},
        Request::Stop { force: false },
        Request::Mark { text: "m".into() },
        Request::Pause {
            action: PauseCommand::Resume,
        },
    ];
    for end in ends {
        for request in &requests {
            std::thread::scope(|scope| {
                scope.spawn(|| end(listener.accept().unwrap().0));
                let failure = answer(&dirs, "a", request).unwrap_err();
                assert_eq!(failure.exit, Exit::NotRunning, "{request:?}: {failure}");
                assert!(failure.message.contains("`ftld list`"), "{failure}");
            });
        }
    }
}

#[test]
fn an_answer_of_another_version_is_named_as_one() {
    let (_folder, dirs, listener) = instance();
    for answer in ["{\"name\":\"a\"}\n", "{\"error\":1}\n", "[]\n"] {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut client = listener.accept().unwrap().0;
                let mut reader = BufReader::new(client.try_clone().unwrap());
                reader.read_line(&mut String::new()).unwrap();
                client.write_all(answer.as_bytes()).unwrap();
            });
            let failure = ask::<Status>(&dirs, "a", &Request::Status {}).unwrap_err();
            assert_eq!(failure.exit, Exit::Failed, "{failure}");
            assert!(failure.message.contains("another version"), "{failure}");
        });
    }
}

/// `ftld status --json` prints what the daemon wrote, keys of another version included.
#[test]
fn an_object_of_another_version_is_passed_on_and_anything_else_is_refused() {
    let (_folder, dirs, listener) = instance();
    for (answer, is_object) in [("{\"name\":\"a\",\"newer\":[1]}\n", true), ("[]\n", false)] {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut client = listener.accept().unwrap().0;
                let mut reader = BufReader::new(client.try_clone().unwrap());
                reader.read_line(&mut String::new()).unwrap();
                client.write_all(answer.as_bytes()).unwrap();
            });
            let asked = ask::<Map<String, Value>>(&dirs, "a", &Request::Status {});
            match asked {
                Ok(answer) => assert!(is_object && answer["newer"] == json!([1]), "{answer:?}"),
                Err(failure) => {
                    assert!(!is_object && failure.message.contains("another version"));
                }
            }
        });
    }
}

/// A misspelt field must not be a command without it.
#[test]
fn an_unknown_field_is_refused_in_every_command() {
    for known in [
        r#"{"command":"status"}"#,
        r#"{"command":"stop","force":true}"#,
        r#"{"command":"mark","text":"m"}"#,
        r#"{"command":"pause","action":{"pause":1.0}}"#,
        r#"{"command":"pause","action":{"events":1}}"#,
        r#"{"command":"inject","fault":{"kind":"power-cut","after":1}}"#,
        r#"{"command":"inject","fault":{"kind":"bad-block","block":[1]}}"#,
        r#"{"command":"inject","fault":{"kind":"bit-errors"}}"#,
        r#"{"command":"inject","fault":{"kind":"flush-fails","count":1}}"#,
        r#"{"command":"inject","fault":{"kind":"write-errors","offset":0}}"#,
        r#"{"command":"inject","fault":{"kind":"read-errors","count":1}}"#,
        r#"{"command":"inject","fault":{"kind":"slow","extra":0.1,"offset":0}}"#,
        r#"{"command":"inject","fault":{"kind":"hang","time":1.0,"length":4096}}"#,
        r#"{"command":"inject","fault":{"kind":"clear"}}"#,
    ] {
        serde_json::from_str::<Request>(known).unwrap_or_else(|error| panic!("{known}: {error}"));
        // In the command, and in its innermost part.
        let outer = known.replacen('{', r#"{"sed":1,"#, 1);
        let at = known.rfind('{').unwrap();
        let inner = format!(r#"{}{{"sed":1,{}"#, &known[..at], &known[at + 1..]);
        for wrong in [outer, inner] {
            assert!(serde_json::from_str::<Request>(&wrong).is_err(), "{wrong}");
        }
    }
}

#[test]
fn requests_are_one_json_line_each() {
    let stop = Request::Stop { force: true };
    assert_eq!(
        serde_json::to_string(&stop).unwrap(),
        r#"{"command":"stop","force":true}"#
    );
    assert_eq!(
        serde_json::from_str::<Request>(r#"{"command":"stop"}"#).unwrap(),
        Request::Stop { force: false }
    );
    for wrong in [
        r#"{"command":"format"}"#,
        r#"{"command":"stop","forse":true}"#,
        "stop",
        "",
    ] {
        assert!(serde_json::from_str::<Request>(wrong).is_err(), "{wrong}");
    }
}
