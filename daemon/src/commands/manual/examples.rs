//! Examples of the manual pages.

/// A purpose, and the command lines for it.
pub(super) type Example = (&'static str, &'static [&'static str]);

/// Returns the examples of a command by the name of its page.
pub(super) fn of(page: &str) -> &'static [Example] {
    let found = EXAMPLES.iter().find(|(name, _)| *name == page);
    found.map_or(&[], |(_, examples)| examples)
}

/// Examples by page.
pub(super) const EXAMPLES: &[(&str, &[Example])] = &[
    (
        "ftld",
        &[
            (
                "Serve a block device of 1 GiB through ublk, and mount it:",
                &[
                    "ftld --detach --size 1GiB /dev/ublkb0",
                    "mkfs.ext4 /dev/ublkb0 && mount /dev/ublkb0 /mnt",
                ],
            ),
            (
                "Serve NBD on a socket, without root and kernel module; look at the live page; stop:",
                &[
                    "ftld --detach --name demo --size 256MiB 'nbd+unix:///?socket=/tmp/demo.sock'",
                    "xdg-open http://127.0.0.1:9917/",
                    "ftld stop demo",
                ],
            ),
            (
                "Wear a device out at the speed of its flash, under another scheme:",
                &["ftld --scheme dftl --profile mlc-4k --latency emulate /dev/ublkb1"],
            ),
            (
                "Compare three schemes under two workloads, in memory:",
                &["ftld compare uniform zipf --scheme lazyftl,pagemap,fast --html compare.html"],
            ),
            (
                "Cut the power of the flash, and mount the image again:",
                &["ftld inject power-cut ublkb0", "ftld start ublkb0"],
            ),
        ],
    ),
    (
        "ftld-create",
        &[
            (
                "Make an image of another scheme for a later start:",
                &["ftld create --name disk --size 8GiB --scheme dftl --op 12.5"],
            ),
            (
                "Make a device that is in use already, as full as it gets:",
                &["ftld create --name used --size 1GiB --age steady"],
            ),
        ],
    ),
    (
        "ftld-inspect",
        &[
            (
                "Show the header of an image, and every block:",
                &["ftld inspect disk", "ftld inspect disk --blocks"],
            ),
            (
                "Find the versions of a logical page, and show one of them:",
                &[
                    "ftld inspect disk --lpn 17",
                    "ftld inspect disk --page 35:4",
                ],
            ),
        ],
    ),
    (
        "ftld-where",
        &[
            (
                "Find the pages of a file on a mounted device, and their dead copies:",
                &["ftld where /mnt/file"],
            ),
            (
                "Find those of the first 64 KiB of a device that an NBD client uses:",
                &["ftld where disk 0+64KiB"],
            ),
        ],
    ),
    (
        "ftld-check",
        &[(
            "Check the image of a stopped instance:",
            &["ftld check disk"],
        )],
    ),
    (
        "ftld-replay",
        &[
            (
                "Replay a trace whose addresses exceed the device:",
                &["ftld replay trace.csv.gz --address compact"],
            ),
            (
                "Run two million requests, 30 % of them reads, and print a row of JSON:",
                &["ftld replay uniform:requests=2M,read=30% --scheme pagemap --json"],
            ),
        ],
    ),
    (
        "ftld-compare",
        &[
            (
                "Compare all schemes under two workloads, as a page with plots:",
                &["ftld compare uniform hotcold:access=95% --size 256MiB --html compare.html"],
            ),
            (
                "Vary the over-provisioning, and print comma-separated values:",
                &["ftld compare zipf --scheme lazyftl,pagemap --op 7,28 --csv"],
            ),
            (
                "Distribute the runs over machines, and join their rows:",
                &[
                    "ftld compare --plan uniform zipf > jobs.ndjson",
                    "ftld compare --job jobs.ndjson --append rows.ndjson",
                    "ftld compare --rows rows.ndjson --against jobs.ndjson --html compare.html",
                ],
            ),
        ],
    ),
    (
        "ftld-workloads",
        &[("List generators and formats:", &["ftld workloads"])],
    ),
    (
        "ftld-new-scheme",
        &[(
            "Write a policy of your own, and judge it:",
            &[
                "ftld new-scheme my-rule --policy",
                "cd my-rule && cargo test -- --nocapture",
            ],
        )],
    ),
    (
        "ftld-schemes",
        &[
            ("List the schemes:", &["ftld schemes"]),
            (
                "Show what a scheme does, and its parameters:",
                &["ftld schemes lazyftl"],
            ),
        ],
    ),
    (
        "ftld-profiles",
        &[(
            "Start a flash device of your own from a built-in one:",
            &[
                "ftld profiles mlc-4k --toml > mine.toml",
                "ftld create --profile mine.toml --size 1GiB",
            ],
        )],
    ),
    (
        "ftld-presets",
        &[(
            "Show one, and run it:",
            &[
                "ftld presets lazyftl-paper",
                "ftld replay uniform --preset lazyftl-paper",
            ],
        )],
    ),
    (
        "ftld-demo",
        &[(
            "Watch another scheme, with files that are made and removed:",
            &["ftld demo --scheme fast --load files"],
        )],
    ),
    (
        "ftld-start",
        &[
            (
                "Stop a device, and serve it again with the same target and options:",
                &["ftld stop demo", "ftld start demo"],
            ),
            (
                "Serve two again after a power cut; they recover:",
                &["ftld list --all", "ftld start demo disk"],
            ),
        ],
    ),
    (
        "ftld-list",
        &[("List the stopped instances, too:", &["ftld list --all"])],
    ),
    (
        "ftld-clone",
        &[(
            "Copy a running device as a power cut would leave it, and mount the copy:",
            &[
                "ftld clone demo after-cut",
                "ftld --name after-cut nbd://127.0.0.1:10810",
            ],
        )],
    ),
    (
        "ftld-rm",
        &[(
            "Remove the images of all instances:",
            &["ftld stop --all", "ftld rm demo disk"],
        )],
    ),
    (
        "ftld-status",
        &[
            (
                "Show an instance once, and every 5 seconds:",
                &["ftld status demo", "ftld status demo --watch 5"],
            ),
            (
                "Read one value in a script:",
                &["ftld status demo --json | jq .write_amplification"],
            ),
        ],
    ),
    (
        "ftld-top",
        &[("Refresh twice a second:", &["ftld top --delay 0.5"])],
    ),
    (
        "ftld-stop",
        &[
            ("Stop two instances cleanly:", &["ftld stop demo disk"]),
            (
                "Remove a device although it is mounted:",
                &["ftld stop ublkb0 --force"],
            ),
        ],
    ),
    (
        "ftld-recover",
        &[(
            "Resume a device whose daemon died:",
            &["ftld recover /dev/ublkb0"],
        )],
    ),
    (
        "ftld-pause",
        &[(
            "Pause for 5 minutes, and end it early:",
            &["ftld pause demo --for 5m", "ftld resume demo"],
        )],
    ),
    (
        "ftld-step",
        &[
            (
                "Serve one request of a paused instance:",
                &["ftld step demo --requests 1"],
            ),
            ("Run until two events:", &["ftld step demo --events 2"]),
        ],
    ),
    (
        "ftld-resume",
        &[("End the pause of an instance:", &["ftld resume demo"])],
    ),
    (
        "ftld-inject",
        &[(
            "Cut the power; make a block fail; multiply the bit errors:",
            &[
                "ftld inject power-cut demo",
                "ftld inject bad-block demo --block 17",
                "ftld inject bit-errors demo --factor 100",
            ],
        )],
    ),
    (
        "ftld-inject-power-cut",
        &[("Cut the power now:", &["ftld inject power-cut demo"])],
    ),
    (
        "ftld-inject-bad-block",
        &[(
            "Make the next program or erase of a block fail:",
            &["ftld inject bad-block demo --block 17"],
        )],
    ),
    (
        "ftld-inject-flush-fails",
        &[(
            "Let the next FLUSH fail, and lose what it should have made durable:",
            &["ftld inject flush-fails demo --count 1 --then lost"],
        )],
    ),
    (
        "ftld-inject-write-errors",
        &[(
            "Let three writes to the first MiB fail:",
            &["ftld inject write-errors demo --count 3 --offset 0 --length 1MiB"],
        )],
    ),
    (
        "ftld-inject-read-errors",
        &[(
            "Let every read of one block of 4 KiB fail:",
            &["ftld inject read-errors demo --offset 64KiB --length 4KiB"],
        )],
    ),
    (
        "ftld-inject-slow",
        &[(
            "Let every request take 50 ms longer:",
            &["ftld inject slow demo --extra 50ms"],
        )],
    ),
    (
        "ftld-inject-hang",
        &[(
            "Let requests wait for ten seconds:",
            &["ftld inject hang demo --for 10s"],
        )],
    ),
    (
        "ftld-inject-clear",
        &[(
            "End the delays; end all faults of requests:",
            &[
                "ftld inject clear demo --kind slow",
                "ftld inject clear demo",
            ],
        )],
    ),
    (
        "ftld-shadow",
        &[(
            "Follow the load of a running device with another scheme, for a while:",
            &["ftld shadow add demo dftl", "ftld shadow rm demo dftl"],
        )],
    ),
    (
        "ftld-shadow-add",
        &[(
            "Compare two schemes on the load of a running device:",
            &[
                "ftld shadow add demo dftl",
                "ftld shadow add demo pagemap:op=28",
                "ftld status demo",
            ],
        )],
    ),
    (
        "ftld-shadow-rm",
        &[("Remove one of them:", &["ftld shadow rm demo dftl"])],
    ),
    (
        "ftld-mark",
        &[(
            "Record a run, and say what it has reported:",
            &[
                "ftld --detach --name demo --record run.rec 'nbd+unix:///?socket=/tmp/demo.sock'",
                "ftld mark demo order-17",
            ],
        )],
    ),
    (
        "ftld-crashes",
        &[
            (
                "Check ext4 in every state that a power cut can leave of a recorded run:",
                &["ftld crashes run.rec --check '/usr/share/doc/ftld/examples/checks/ext4.sh'"],
            ),
            (
                "The states that the recorded scheme leaves; reports for CI and for reading:",
                &[
                    "ftld crashes run.rec --model flash --check ./check.sh --junit crashes.xml --html crashes.html",
                ],
            ),
            (
                "Show one failing state again, and keep its image:",
                &[
                    "ftld crashes run.rec --check ./check.sh --case cache/412/256=0 --keep state.raw",
                ],
            ),
        ],
    ),
    (
        "ftld-crash-test",
        &[
            (
                "Check the files of a program in every state that a power cut can leave:",
                &["ftld crash-test --check ./check.sh -- ./workload.sh {}"],
            ),
            (
                "One that writes to a block device:",
                &["ftld crash-test --fs none --check ./check.sh -- ./workload.sh {}"],
            ),
        ],
    ),
    (
        "ftld-inject-bit-errors",
        &[(
            "Multiply the bit error rate of all reads by 100:",
            &["ftld inject bit-errors demo --factor 100"],
        )],
    ),
    (
        "ftld-doctor",
        &[
            ("Check what a ublk device needs:", &["ftld doctor"]),
            (
                "Check what an NBD socket needs:",
                &["ftld doctor 'nbd+unix:///?socket=/tmp/demo.sock'"],
            ),
        ],
    ),
    (
        "ftld-completions",
        &[
            (
                "Complete in this shell:",
                &["source <(ftld completions bash)"],
            ),
            (
                "Complete in every shell of a user:",
                &["ftld completions fish > ~/.config/fish/completions/ftld.fish"],
            ),
        ],
    ),
    (
        "ftld-man",
        &[(
            "Write the pages, and read one:",
            &["ftld man pages", "man -l pages/ftld.8"],
        )],
    ),
];
