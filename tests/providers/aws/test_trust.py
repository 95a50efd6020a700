"""The trust policies that are printed are those that AWS wants, and no wider."""

import json
import re
from typing import Any

from agent.providers.aws.trust import TAGS
from tests.servers.cloud import ROLE, aws_settings

ISSUER = "https://issuer.example/tenant/one"
SUBJECT = "system:serviceaccount:demo:s3-reader"


def lines(**settings: Any) -> str:
    """All that is printed."""
    return "\n".join(aws_settings(**settings).trust_commands(issuer=ISSUER, subject=SUBJECT))


def policies(text: str) -> list[dict[str, Any]]:
    """Those between the marks of the shell."""
    return [json.loads(found) for found in re.findall(r"<<'POLICY'\n(.*?)\nPOLICY\n", text, re.DOTALL)]


def test_the_role_trusts_one_subject_of_one_issuer_for_one_audience():
    assert policies(lines()) == [
        {
            "Version": "2012-10-17",
            "Statement": [
                {
                    "Effect": "Allow",
                    "Principal": {"Federated": "arn:aws:iam::123456789012:oidc-provider/issuer.example/tenant/one"},
                    "Action": "sts:AssumeRoleWithWebIdentity",
                    "Condition": {
                        "StringEquals": {
                            "issuer.example/tenant/one:aud": "sts.amazonaws.com",
                            "issuer.example/tenant/one:sub": SUBJECT,
                        }
                    },
                }
            ],
        }
    ]


def test_the_commands_name_issuer_audience_role_and_path():
    text = lines(roleArn="arn:aws:iam::123456789012:role/team/s3-reader")
    assert "aws iam create-open-id-connect-provider --url https://issuer.example/tenant/one --client-id-list sts.amazonaws.com\n" in text
    assert "aws iam create-role --role-name s3-reader --path /team/ --assume-role-policy-document file://s3-reader.trust.json\n" in text
    assert "not an https URL" not in text


def test_another_partition_is_that_of_the_role():
    role = "arn:aws-cn:iam::123456789012:role/s3-reader"
    (policy,) = policies(lines(roleArn=role, region="cn-north-1"))
    assert policy["Statement"][0]["Principal"]["Federated"].startswith("arn:aws-cn:iam::123456789012:oidc-provider/")


def test_a_chain_prints_each_role_and_no_external_id():
    second = "arn:aws:iam::210987654321:role/writer"
    text = lines(chain=[{"roleArn": second, "externalId": "canary-tenant-7", "sessionTags": {"a": "b"}}])
    _, policy = policies(text)
    assert policy["Statement"] == [
        {
            "Effect": "Allow",
            "Principal": {"AWS": ROLE},
            "Action": ["sts:AssumeRole", "sts:TagSession"],
            "Condition": {"StringEquals": {"sts:ExternalId": "<provider.chain[0].externalId>"}},
        }
    ]
    assert "canary" not in text


def test_a_token_that_sets_session_tags_needs_one_more_action():
    made = aws_settings().trust(issuer=ISSUER, subject=SUBJECT, claims={TAGS: {}})
    assert made.policy()["Statement"][0]["Action"] == ["sts:AssumeRoleWithWebIdentity", "sts:TagSession"]


def test_an_issuer_over_http_is_said_to_be_of_no_use_to_aws():
    text = "\n".join(aws_settings().trust_commands(issuer="http://127.0.0.1:9482", subject=SUBJECT))
    assert "http://127.0.0.1:9482 is not an https URL" in text


def test_what_somebody_else_wrote_stays_one_word_of_the_shell():
    text = "\n".join(aws_settings().trust_commands(issuer="https://issuer.example/$(id)", subject="x'; id #\nPOLICY\nid"))
    assert "--url 'https://issuer.example/$(id)' " in text
    assert len(re.findall(r"^POLICY$", text, re.MULTILINE)) == 1


def test_an_issuer_that_would_end_a_comment_gets_no_commands():
    assert list(aws_settings().trust_commands(issuer="http://x\nid", subject=SUBJECT)) == []
