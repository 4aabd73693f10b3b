//! Many maps at a time, in a process of their own: all maps of a process share the watches.

use ftld_mapped_file::MappedFile;
use std::io::{ErrorKind, Write};

#[test]
fn there_are_maps_for_many_images_and_an_error_beyond() {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&[6; 4096]).unwrap();
    let mut maps = Vec::new();
    let error = loop {
        match MappedFile::new(&file, 4096) {
            Ok(map) => maps.push(map),
            Err(error) => break error,
        }
        assert!(maps.len() < 10_000, "no limit");
    };
    assert!(maps.len() >= 256, "only {} maps", maps.len());
    assert_eq!(error.kind(), ErrorKind::ResourceBusy);
    maps.pop();
    let mut buf = [0; 4096];
    MappedFile::new(&file, 4096)
        .unwrap()
        .read_at(0, &mut buf)
        .unwrap();
    assert_eq!(buf, [6; 4096]);
}
