//! The test harness: payloads that name themselves, the oracle, workloads, the rig.
