//! Vectors: "SMB 2 and SMB 3 security in Windows 10: the anatomy of signing and cryptographic keys" and "SMB 3.1.1
//! Encryption in Windows 10" (Open Specifications blog), and an independent SP800-108 implementation.

use super::{hex, hex16};
use crate::crypto::*;
use aws_lc_rs::kdf::{KbkdfCtrHmacAlgorithmId, get_kbkdf_ctr_hmac_algorithm, kbkdf_ctr_hmac};

fn derived(secret: &str, label: &[u8], context: &[u8]) -> Vec<u8> {
    let mut key = [0; 16];
    derive_key(&hex(secret), label, context, &mut key);
    key.to_vec()
}

#[test]
fn smb_3_0_keys_are_those_of_the_published_session() {
    let session = "7CD451825D0450D235424E44BA6E78CC";
    assert_eq!(derived(session, b"SMB2AESCMAC\0", b"SmbSign\0"), hex("0B7E9C5CAC36C0F6EA9AB275298CEDCE"));
    assert_eq!(derived(session, b"SMB2AESCCM\0", b"ServerIn \0"), hex("FAD27796665B313EBB578F388632B4F7"));
    assert_eq!(derived(session, b"SMB2AESCCM\0", b"ServerOut\0"), hex("B0F0427F7CEB416D1D9DCC0CD4F99447"));
    let keys = SessionKeys::new(KeySchedule::Smb30, &hex(session));
    assert_eq!(keys.application_key().to_vec(), hex("BB23A4575AA26C721AF525AF15A87B4F"));
}

#[test]
fn smb_3_1_1_keys_follow_from_the_hash_over_the_published_session_setup() {
    let mut hash = PreauthHash::default();
    hash.update(&hex("FE534D4240000100000000000000800000000000000000000100000000000000FFFE000000000000
        00000000000000000000000000000000000000000000000024000500010000003F000000ECD86F32
        6276024F9F7752B89BB33F3A70000000020000000202100200030203110300000100260000000000
        0100200001003E38B8B81A9AFB172278056F4898FD09A1B9976A49B2D771161FCD4D40DF7D7D0000
        0200060000000000020002000100"));
    assert_eq!(
        hash.value()[..],
        hex("F035C2B2BAB116E0DCF6A74E26670604D1BF6DDA065913AF7C30E93C1F025AC3CE2DD44D4DE26524
             A785E5D8E06AF0BE1C74296FEF05B045C3793A12B32C49DF")
    );

    let published = hex("0DD13628CC3ED218EF9DF9772D436D0887AB9814BFAE63A80AA845F36909DB7928622DDDAD522D97
        51640A459762C5A9D6BB084CBB3CE6BDADEF5D5BCE3C6C01");
    let session = "270E1BA896585EEB7AF3472D3B4C75A7";
    assert_eq!(derived(session, b"SMBSigningKey\0", &published), hex("73FE7A9A77BEF0BDE49C650D8CCB5F76"));
    assert_eq!(derived(session, b"SMBC2SCipherKey\0", &published), hex("629BCBC54422A0F572B97F45989B6073"));
    assert_eq!(derived(session, b"SMBS2CCipherKey\0", &published), hex("E2AF0DCEFAC68DA71A0DFBD0D1350D74"));
    assert_eq!(derived(session, b"SMBAppKey\0", &published), hex("6D7AD7954E9EC61E907B4D473DC178FF"));
}

#[test]
fn a_message_in_parts_hashes_as_the_whole_message() {
    let (mut whole, mut parts) = (PreauthHash::default(), PreauthHash::default());
    whole.update(b"negotiate request");
    parts.update_parts(&[b"nego", b"", b"tiate request"]);
    assert_eq!(whole, parts);
}

#[test]
fn keys_of_every_length_equal_those_of_another_implementation() {
    let sha256 = get_kbkdf_ctr_hmac_algorithm(KbkdfCtrHmacAlgorithmId::Sha256).unwrap();
    let context = [0x5A; 64];
    for len in [1_usize, 16, 31, 32, 33, 64, 80] {
        let mut info = b"SMBC2SCipherKey\0\0".to_vec();
        info.extend_from_slice(&context);
        info.extend_from_slice(&(len as u32 * 8).to_be_bytes());
        let mut theirs = vec![0; len];
        kbkdf_ctr_hmac(sha256, &[7; 32], &info, &mut theirs).unwrap();
        let mut ours = vec![0; len];
        derive_key(&[7; 32], b"SMBC2SCipherKey\0", &context, &mut ours);
        assert_eq!(ours, theirs, "{len} bytes");
    }
}

#[test]
fn ciphers_of_256_bits_use_the_full_key_and_signing_its_first_16_bytes() {
    let hash = PreauthHash::default();
    let long = SessionKeys::new(KeySchedule::Smb311(&hash), &[1; 32]);
    let mut other = [1; 32];
    other[31] = 2;
    let other = SessionKeys::new(KeySchedule::Smb311(&hash), &other);
    let sign = |keys: &SessionKeys<'_>| {
        keys.signing_key(SigningAlgorithm::AesCmac).sign(&[&[0; 64]], 0, false, false)
    };
    assert_eq!(sign(&long), sign(&other));

    let mut message = [0; TRANSFORM_HEADER_BYTES + 4];
    long.client_ciphers(CipherId::Aes256Gcm).unwrap().0.seal_parts(&[&[0; 4]], &mut message, 1).unwrap();
    let (_, open) = other.server_ciphers(CipherId::Aes256Gcm).unwrap();
    assert_eq!(open.open_in_place(&mut message.clone()).err(), Some(CryptoError::NotAuthentic));
    let (_, open) = long.server_ciphers(CipherId::Aes256Gcm).unwrap();
    assert!(open.open_in_place(&mut message).is_ok());
}

#[test]
fn smb_2_signs_with_the_session_key_itself_and_has_no_ciphers() {
    let keys = SessionKeys::new(KeySchedule::Smb2, &[3; 16]);
    let direct = SigningKey::new(SigningAlgorithm::HmacSha256, &[3; 16]);
    assert_eq!(
        keys.signing_key(SigningAlgorithm::AesGmac).sign(&[&[9; 80]], 5, true, false),
        direct.sign(&[&[9; 80]], 5, true, false)
    );
    assert_eq!(keys.application_key()[..], [3; 16]);
    assert_eq!(keys.server_ciphers(CipherId::Aes128Ccm).err(), Some(CryptoError::KeyLength));
}

#[test]
fn a_session_key_of_less_than_16_bytes_is_padded_with_zeros() {
    let mut padded = hex16("01010101010101010000000000000000");
    padded[7] = 1;
    let short = SessionKeys::new(KeySchedule::Smb30, &[1; 8]).signing_key(SigningAlgorithm::AesCmac);
    let long = SessionKeys::new(KeySchedule::Smb30, &padded).signing_key(SigningAlgorithm::AesCmac);
    assert_eq!(short.sign(&[&[0; 64]], 0, false, false), long.sign(&[&[0; 64]], 0, false, false));
}
