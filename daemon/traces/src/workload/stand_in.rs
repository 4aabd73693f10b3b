//! Stand-ins for traces that are unpublished or unavailable: generators with the published
//! statistics. The unpublished choices are ours and common to all: addresses by Zipf's law with an
//! exponent of 0.9 over the whole device.

use super::Generator;

/// MNFTL (Qin et al., DAC 2011), Table 1: records, share of writes, mean length. The first three
/// are SPC traces, the others are the authors'.
pub(super) const MNFTL: [Generator; 6] = [
    Generator::stand_in(
        "stand-in-financial1",
        "stand-in for SPC Financial1 as in MNFTL's Table 1: 1,333,747 records, 78.56 % writes, mean 3.17 KB",
        "zipf:requests=1333747,read=21.44%,size=mean:3.17KiB,theta=0.9",
    ),
    Generator::stand_in(
        "stand-in-financial2",
        "stand-in for SPC Financial2 as in MNFTL's Table 1: 3,699,194 records, 17.65 % writes, mean 2.26 KB",
        "zipf:requests=3699194,read=82.35%,size=mean:2.26KiB,theta=0.9",
    ),
    Generator::stand_in(
        "stand-in-websearch",
        "stand-in for SPC Websearch as in MNFTL's Table 1: 4,261,709 records, 0.02 % writes, mean 15.05 KB",
        "zipf:requests=4261709,read=99.98%,size=mean:15.05KiB,theta=0.9",
    ),
    Generator::stand_in(
        "stand-in-systemdisk1",
        "stand-in for MNFTL's Systemdisk1: 1,040,692 records, 74.04 % writes, mean 42.65 KB",
        "zipf:requests=1040692,read=25.96%,size=mean:42.65KiB,theta=0.9",
    ),
    Generator::stand_in(
        "stand-in-systemdisk2",
        "stand-in for MNFTL's Systemdisk2: 2,636,016 records, 61.96 % writes, mean 44.10 KB",
        "zipf:requests=2636016,read=38.04%,size=mean:44.10KiB,theta=0.9",
    ),
    Generator::stand_in(
        "stand-in-systemdisk3",
        "stand-in for MNFTL's Systemdisk3: 1,312,945 records, 58.10 % writes, mean 36.72 KB",
        "zipf:requests=1312945,read=41.90%,size=mean:36.72KiB,theta=0.9",
    ),
];

/// ROSE (Chiao and Chang, IEEE TC 2011), 5.1 and Table 3. Columns: sectors written, mean length of
/// a write, share of pages written by whole blocks of 128 KiB. Writes only. If the share needs more
/// whole blocks than lengths of that mean contain at random, some requests are exactly one block.
/// With a mean of m sectors and a share f, they are a part w = f m / 256. The others have (1 - f) m
/// / (1 - w) sectors on average.
pub(super) const ROSE: [Generator; 6] = [
    Generator::stand_in(
        "stand-in-linuxpc",
        "stand-in for ROSE's LinuxPC: 107,111,668 sectors in writes of mean 71.76, half of the pages in whole blocks",
        "zipf:requests=1492637,size=mean:20869/0.8599+128KiB/0.1401,theta=0.9",
    ),
    Generator::stand_in(
        "stand-in-postmark",
        "stand-in for ROSE's Postmark: 8,816,216 sectors in writes of mean 6.68, none in whole blocks",
        "zipf:requests=1319793,size=mean:3420,theta=0.9",
    ),
    Generator::stand_in(
        "stand-in-largefile",
        "stand-in for ROSE's LargeFile: 60,149,736 sectors in writes of mean 748.61, 72 % of the pages in whole blocks",
        "zipf:requests=80349,size=mean:383288,theta=0.9",
    ),
    Generator::stand_in(
        "stand-in-fin1",
        "stand-in for ROSE's Fin1: 30,517,409 sectors in writes of mean 7.44, 1 % of the pages in whole blocks",
        "zipf:requests=4101802,size=mean:3772/0.99971+128KiB/0.00029,theta=0.9",
    ),
    Generator::stand_in(
        "stand-in-fin2",
        "stand-in for ROSE's Fin2: 3,810,800 sectors in writes of mean 5.84, 6 % of the pages in whole blocks",
        "zipf:requests=652534,size=mean:2814/0.99863+128KiB/0.00137,theta=0.9",
    ),
    Generator::stand_in(
        "stand-in-4vms",
        "stand-in for ROSE's 4VMs: 109,804,512 sectors in writes of mean 35.39, 9 % of the pages in whole blocks",
        "zipf:requests=3102699,size=mean:16696/0.98756+128KiB/0.01244,theta=0.9",
    ),
];
