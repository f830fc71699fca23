//! The record of a bucket as bytes.

use tollgate::backend::BucketRecord;

/// The version of the format, which is the first byte.
const VERSION: u8 = 1;

/// The length of a record.
const RECORD_LEN: usize = 49;

/// The record as bytes: the version, and its six [numbers](BucketRecord::to_numbers) in eight bytes
/// each, the high end first.
pub fn encode_record(record: &BucketRecord) -> [u8; RECORD_LEN] {
    let mut bytes = [VERSION; RECORD_LEN];
    let (places, _) = bytes.split_at_mut(1).1.as_chunks_mut::<8>();
    for (place, number) in places.iter_mut().zip(record.to_numbers()) {
        *place = number.to_be_bytes();
    }
    bytes
}

/// The record of these bytes; the error says why they are none.
pub fn decode_record(bytes: &[u8]) -> Result<BucketRecord, &'static str> {
    let Ok([version, numbers @ ..]) = <&[u8; RECORD_LEN]>::try_from(bytes) else {
        return Err("it is not 49 bytes long");
    };
    if *version != VERSION {
        return Err("its first byte, the version of the format, is not 1");
    }
    let mut read = [0; 6];
    for (number, place) in read.iter_mut().zip(numbers.as_chunks::<8>().0) {
        *number = i64::from_be_bytes(*place);
    }
    BucketRecord::from_numbers(read).ok_or("its numbers are those of no quota")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use tollgate::algebra::{Bucket, State};
    use tollgate::{HOUR, Quota, Timestamp};

    fn record(value: i64, ts: i64) -> BucketRecord {
        let bucket = Bucket::new(&Quota::token_bucket(10, HOUR)).unwrap();
        BucketRecord::new(&bucket, State { value, ts: Timestamp::from_micros(ts) })
    }

    #[test]
    fn a_record_has_49_bytes() {
        let bytes = encode_record(&record(-2, 3));
        assert_eq!(bytes[..9], [1, 255, 255, 255, 255, 255, 255, 255, 254]);
        assert_eq!(bytes[9..17], [0, 0, 0, 0, 0, 0, 0, 3]);
        assert_eq!(decode_record(&bytes), Ok(record(-2, 3)));
    }

    #[test]
    fn foreign_bytes_are_no_record() {
        let bytes = encode_record(&record(1, 2));
        for (wrong, why) in [
            (&b""[..], "49 bytes long"),
            (b"hello", "49 bytes long"),
            (&bytes[..48], "49 bytes long"),
            (&[bytes.as_slice(), b"!"].concat(), "49 bytes long"),
            (&[2; 49], "version"),
            (&[1; 49], "numbers"),
        ] {
            assert!(decode_record(wrong).is_err_and(|said| said.contains(why)), "{wrong:?}");
        }
    }

    proptest! {
        /// Whatever is stored is read as a record with the same bytes, or not at all.
        #[test]
        fn any_bytes_are_read_exactly_or_refused(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..64),
            flips in proptest::collection::vec((0_usize..49, any::<u8>()), 0..4),
            is_near in any::<bool>(),
        ) {
            if is_near {
                bytes = encode_record(&record(5, 1_700_000_000_000_000)).to_vec();
                for (place, byte) in flips {
                    bytes[place] = byte;
                }
            }
            if let Ok(record) = decode_record(&bytes) {
                prop_assert_eq!(encode_record(&record).to_vec(), bytes);
            }
        }
    }
}
