"""Terraform with DigitalOcean's provider, pointed at Weir: pools as resources are made, read, changed, imported and destroyed."""

import json
import os
import shutil

import pytest

import drivers
import host
import panel

pytestmark = [pytest.mark.weir_only, pytest.mark.any_driver]

MAIN = """
terraform {
  required_providers {
    digitalocean = {
      source = "mirror.example/digitalocean/digitalocean"
    }
  }
}

variable "url" { type = string }
variable "token" { type = string }
variable "cluster" { type = string }
variable "size" { default = 5 }
variable "mode" { default = "transaction" }

provider "digitalocean" {
  api_endpoint = var.url
  token        = var.token
}

data "digitalocean_database_cluster" "main" {
  name = var.cluster
}

resource "digitalocean_database_connection_pool" "backend" {
  cluster_id = data.digitalocean_database_cluster.main.id
  name       = "backend-pool"
  db_name    = "app"
  user       = "alice"
  mode       = var.mode
  size       = var.size
}

output "uri" {
  value     = digitalocean_database_connection_pool.backend.uri
  sensitive = true
}
"""


class Terraform:
    """A working directory in which Terraform has the provider, and the panel that its provider is pointed at."""

    def __init__(self, directory, pooler, web):
        self.directory, self.pooler, self.web = directory, pooler, web
        (directory / "main.tf").write_text(MAIN)
        # Where `terraform init` finds the provider, so that it asks no registry.
        mirror = directory / "mirror/mirror.example/digitalocean/digitalocean" / drivers.PROVIDER.version() / drivers.go_platform()
        mirror.mkdir(parents=True)
        (mirror / f"terraform-provider-digitalocean_v{drivers.PROVIDER.version()}").symlink_to(drivers.PROVIDER.command()[0])
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(directory),
            "CHECKPOINT_DISABLE": "1",
            "TF_IN_AUTOMATION": "1",
            "TF_VAR_url": f"http://127.0.0.1:{web.port}/",
            "TF_VAR_token": web.token,
            "TF_VAR_cluster": f"127.0.0.1:{pooler.postgres.port}",
        }
        self.run("init", "-input=false", f"-plugin-dir={directory / 'mirror'}")

    def run(self, *words, status=0, **variables):
        """Runs it, and returns what it printed."""
        given = [f"-var={name}={value}" for name, value in variables.items()]
        done = host.run([drivers.terraform(), *words, *given], cwd=self.directory, env=self.environment, check=False, as_user=False, timeout=180)
        assert done.returncode == status, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def apply(self, **variables):
        return self.run("apply", "-auto-approve", "-input=false", "-no-color", **variables)

    def plan(self, status, **variables):
        """Status 0: nothing is to be changed; 2: something is."""
        return self.run("plan", "-input=false", "-no-color", "-detailed-exitcode", status=status, **variables)

    def uri(self):
        return json.loads(self.run("output", "-json"))["uri"]["value"]


@pytest.fixture
def terraform(weir, scratch):
    if lacking := drivers.PROVIDER.lacking():
        pytest.skip(f"tests/clients/terraform-provider lacks {lacking}")
    drivers.PROVIDER.ensure_built()
    pooler, web = panel.start_for_pools(weir)
    directory = host.new_directory(scratch, "terraform")
    yield Terraform(directory, pooler, web)
    shutil.rmtree(directory, ignore_errors=True)


def shown(terraform):
    """The pool by the panel's own API; None if there is none."""
    status, body, _ = terraform.web.ask("GET", "/api/v1/pools/backend-pool")
    return (body.get("pool") or body) if status == 200 else None


def ask(terraform, uri, sql):
    return host.run([terraform.pooler.postgres.bindir / "psql", "-XAtc", sql, uri]).stdout.strip()


def test_a_pools_life(terraform):
    terraform.plan(2)
    assert "1 added, 0 changed, 0 destroyed" in terraform.apply()
    assert (shown(terraform)["size"], shown(terraform)["mode"], shown(terraform)["db"], shown(terraform)["user"]) == (5, "transaction", "app", "alice")
    uri = terraform.uri()
    assert "backend-pool" in uri and str(terraform.pooler.port) in uri
    assert ask(terraform, uri, "select current_user, current_database()") == "alice|app"
    terraform.plan(0)  # What it reads is what it has written.

    assert "must be replaced" in terraform.plan(2, size=7)
    assert "1 added, 0 changed, 1 destroyed" in terraform.apply(size=7, mode="session")
    assert (shown(terraform)["size"], shown(terraform)["mode"]) == (7, "session")
    assert ask(terraform, terraform.uri(), "select 1") == "1"

    assert "1 destroyed" in terraform.run("destroy", "-auto-approve", "-no-color")
    assert shown(terraform) is None
    assert "backend-pool" not in (terraform.pooler.directory / "pools.ini").read_text()


def test_what_was_done_elsewhere_is_noticed(terraform):
    terraform.apply()
    pool = shown(terraform)
    terraform.web.ask("PUT", "/api/v1/pools/backend-pool", {"name": "backend-pool", "db": "app", "user": "alice", "mode": "transaction", "size": 9})
    assert shown(terraform)["size"] == 9 != pool["size"]
    changed = terraform.plan(2)
    assert "9 -> 5" in changed, changed
    status, _, _ = terraform.web.ask("DELETE", "/api/v1/pools/backend-pool")
    assert status == 204
    assert "1 to add, 0 to change, 0 to destroy" in terraform.plan(2)


def test_a_pool_that_is_there_is_imported(terraform):
    clusters = terraform.web.get("/v2/databases")["databases"]
    [cluster] = [one["id"] for one in clusters if one["name"] == terraform.environment["TF_VAR_cluster"]]
    spec = {"name": "backend-pool", "db": "app", "user": "alice", "mode": "transaction", "size": 5}
    status, _, _ = terraform.web.ask("POST", f"/v2/databases/{cluster}/pools", spec)
    assert status == 201
    terraform.run("import", "-input=false", "-no-color", "digitalocean_database_connection_pool.backend", f"{cluster},backend-pool")
    terraform.plan(0)


def test_refusals_are_told_in_words(terraform):
    refused = terraform.run("apply", "-auto-approve", "-input=false", "-no-color", status=1, size=100_000)
    assert "422" in refused and "100000 connections are more than" in refused, refused
    assert shown(terraform) is None
    terraform.apply()
    terraform.environment["TF_VAR_token"] = "wrong"
    assert "401" in terraform.run("plan", "-input=false", "-no-color", status=1)
