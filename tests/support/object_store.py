"""An S3 server on this machine: moto's, in a thread of the test process."""

from contextlib import contextmanager
from threading import Thread

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server
from werkzeug.wrappers import Response

ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}
"""For clients of it, with `AWS_ENDPOINT_URL`."""


class Answers:
    """What a server has answered: its requests, and the bytes that it sent."""

    def __init__(self):
        self.requests = []
        self.bytes = 0

    def clear(self):
        """Forget what was answered so far."""
        self.__init__()

    def watch(self, app):
        """The app, of which each answer is counted."""

        def serve(environ, start_response):
            response = Response.from_app(app, environ)
            self.requests.append(f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}")
            self.bytes += len(response.data)
            return response(environ, start_response)

        return serve


@contextmanager
def object_store(*buckets, answers=None):
    """Run a server with these buckets; gives its address, and counts its answers."""
    import boto3

    app = _ends_uploads_as_s3_does(DomainDispatcherApplication(create_backend_app))
    app = app if answers is None else answers.watch(app)
    server = make_server("127.0.0.1", 0, app, threaded=True)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        address = f"http://127.0.0.1:{server.server_port}"
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
        server.shutdown()
        thread.join()
        server.server_close()


def _ends_uploads_as_s3_does(app):
    """Moto's app, whose answer to the last request of an upload in parts is that of S3.

    Arrow sends files of more than 5 MiB in parts, and takes an answer with another root element
    than `CompleteMultipartUploadResult`, which is that of S3, for an error. Moto's is
    `CompleteMultipartUploadResponse`.
    https://docs.aws.amazon.com/AmazonS3/latest/API/API_CompleteMultipartUpload.html
    """

    def serve(environ, start_response):
        if environ["REQUEST_METHOD"] != "POST" or "uploadId=" not in environ["QUERY_STRING"]:
            return app(environ, start_response)
        response = Response.from_app(app, environ)
        response.data = response.data.replace(b"UploadResponse", b"UploadResult")
        return response(environ, start_response)

    return serve
