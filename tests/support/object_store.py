"""An S3 server on this machine: moto's, in a thread of the test process."""

from contextlib import contextmanager

from moto.server import ThreadedMotoServer

ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}
"""For clients of it, with `AWS_ENDPOINT_URL`."""


@contextmanager
def object_store(*buckets):
    """Run a server with these buckets; gives its address.

    Files of more than 5 MiB cannot be written: Arrow sends them in parts, and does not take moto's
    answer to the last one.
    """
    import boto3

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        address = "http://{}:{}".format(*server.get_host_and_port())
        client = boto3.client(
            "s3",
            endpoint_url=address,
            region_name="us-east-1",
            aws_access_key_id="test",
            aws_secret_access_key="test",
        )
        for bucket in buckets:
            client.create_bucket(Bucket=bucket)
        yield address
    finally:
        server.stop()
