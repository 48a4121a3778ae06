"""A client that openapi-python-client made from the server's own document: api_client.py URL TOKEN-FILE NEW-DISK-FILE."""

import sys

import httpx
from cenote_client import AuthenticatedClient, Client
from cenote_client.api.accounts import add_user, user, users
from cenote_client.api.disks import add_disk, disk, disks
from cenote_client.api.jobs import jobs
from cenote_client.api.pools import pool, pools
from cenote_client.api.server import health, healthz, perf
from cenote_client.api.shares import share, shares
from cenote_client.api.volumes import create_volume, delete_volume, set_volume, volume, volumes
from cenote_client.models import AddDisk, AddUser, ApiError, CreateVolume, Created, ErrorKind, SetVolume, Volume

from peer_tests import run, test

url, token_file, new_disk = sys.argv[1:]
token = open(token_file).read().strip()
client = AuthenticatedClient(base_url=url, token=token, timeout=httpx.Timeout(60))

@test
def lists_and_single_things_are_the_same_objects():
    for one, many, key in ((disk, disks, "id"), (pool, pools, "name"), (volume, volumes, "name"), (share, shares, "name"), (user, users, "name")):
        listed = many.sync(client=client)
        assert listed, many.__name__
        single = one.sync(getattr(listed[0], key), client=client)
        assert type(single) is type(listed[0]) and getattr(single, key) == getattr(listed[0], key), single


@test
def a_volume_is_made_grown_shown_and_destroyed():
    made = create_volume.sync(client=client, body=CreateVolume(name="generated", size_bytes=256 << 20))
    assert isinstance(made, Created) and made.name == "generated", made
    answer = set_volume.sync_detailed("generated", client=client, body=SetVolume(size_bytes=512 << 20))
    assert answer.status_code == 200 and answer.parsed is None, answer
    shown = volume.sync("GENERATED", client=client)
    assert isinstance(shown, Volume) and shown.id == made.id, shown
    refused = delete_volume.sync("generated", client=client, confirm="another")
    assert isinstance(refused, ApiError) and refused.kind == ErrorKind.CONFIRMATION_NEEDED, refused
    assert delete_volume.sync_detailed("generated", client=client, confirm="generated").status_code == 200
    gone = volume.sync("generated", client=client)
    assert isinstance(gone, ApiError) and gone.kind == ErrorKind.NOT_FOUND, gone


@test
def a_disk_is_added_and_found_by_its_id():
    added = add_disk.sync(client=client, body=AddDisk(path=new_disk, create_size_bytes=1 << 30))
    assert isinstance(added, Created) and added.name == new_disk, added
    assert disk.sync(added.id, client=client).path == new_disk


@test
def errors_are_objects_of_one_kind_whatever_failed():
    bad = add_user.sync(client=client, body=AddUser(name="a/b", password="secret word"))
    assert isinstance(bad, ApiError) and bad.kind == ErrorKind.INVALID and bad.message, bad
    stranger = AuthenticatedClient(base_url=url, token="0" * 64)
    refused = disks.sync(client=stranger)
    assert isinstance(refused, ApiError) and refused.kind == ErrorKind.UNAUTHORIZED, refused


@test
def health_performance_jobs_and_the_answer_to_probes_are_understood():
    assert health.sync(client=client).issues is not None
    assert perf.sync(client=client).uptime_us > 0
    assert isinstance(jobs.sync(client=client), list)
    assert healthz.sync_detailed(client=Client(base_url=url)).status_code == 200


sys.exit(run("generated client"))
