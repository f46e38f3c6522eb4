"""Broker properties about TLS, SASL, ACLs and delegation tokens."""

from __future__ import annotations

from penstock.config.properties import Property
from penstock.config.tables.vocabulary import (
    ACCEPTED,
    BOOLEAN,
    CLASS,
    DOUBLE,
    INT,
    LIST,
    LONG,
    NO_JAVA,
    NO_KERBEROS,
    PASSWORD,
    PER_BROKER,
    PLANNED,
    SHORT,
    STRING,
)

_OAUTH_CLIENT = "Brokers prove themselves to each other with SCRAM, PLAIN or certificates."

ACCESS_ROWS = (
    Property(
        "authorizer.class.name",
        STRING,
        "",
        "Turns on ACLs; Kafka's StandardAuthorizer by its Java name.",
    ),
    Property(
        "super.users",
        STRING,
        "",
        "Principals that may do everything, as User:name, separated by semicolons.",
    ),
    Property(
        "allow.everyone.if.no.acl.found",
        BOOLEAN,
        False,
        "Whether a resource without ACLs is open to all.",
    ),
    Property(
        "principal.builder.class",
        CLASS,
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
        "A class that names the user of a connection.",
        update=PER_BROKER,
        effect=ACCEPTED,
        reason=NO_JAVA,
    ),
    Property(
        "connection.failed.authentication.delay.ms",
        INT,
        100,
        "How long a failed login waits for its answer.",
        minimum=0,
        effect=PLANNED,
    ),
    Property(
        "connections.max.reauth.ms",
        LONG,
        0,
        "How long a login is good for; 0 for as long as the connection.",
        effect=PLANNED,
    ),
    Property(
        "security.providers", STRING, None, "Classes that provide security algorithms.", effect=ACCEPTED, reason=NO_JAVA
    ),
    Property(
        "delegation.token.expiry.check.interval.ms",
        LONG,
        3_600_000,
        "How often expired tokens are removed.",
        minimum=1,
        effect=PLANNED,
    ),
    Property(
        "delegation.token.expiry.time.ms",
        LONG,
        86_400_000,
        "How long a token is good for before it must be renewed.",
        minimum=1,
        effect=PLANNED,
    ),
    Property(
        "delegation.token.max.lifetime.ms",
        LONG,
        604_800_000,
        "How long a token can be renewed.",
        minimum=1,
        effect=PLANNED,
    ),
    Property(
        "delegation.token.secret.key",
        PASSWORD,
        None,
        "The secret that signs tokens, the same on all nodes.",
        effect=PLANNED,
    ),
)

SSL_ROWS = (
    Property(
        "ssl.allow.dn.changes", BOOLEAN, False, "Take a new certificate although its subject differs.", effect=PLANNED
    ),
    Property(
        "ssl.allow.san.changes", BOOLEAN, False, "Take a new certificate although its names differ.", effect=PLANNED
    ),
    Property(
        "ssl.cipher.suites",
        LIST,
        (),
        "Cipher suites that are offered; empty for the library's choice.",
        update=PER_BROKER,
        effect=PLANNED,
    ),
    Property(
        "ssl.client.auth",
        STRING,
        "none",
        "Whether clients must show a certificate.",
        choices=("required", "requested", "none"),
        update=PER_BROKER,
        effect=PLANNED,
    ),
    Property(
        "ssl.enabled.protocols",
        LIST,
        ("TLSv1.2", "TLSv1.3"),
        "Versions of TLS that are offered.",
        update=PER_BROKER,
        effect=PLANNED,
    ),
    Property(
        "ssl.endpoint.identification.algorithm",
        STRING,
        "https",
        "How a peer's name is checked; empty for not at all.",
        update=PER_BROKER,
        effect=PLANNED,
    ),
    Property(
        "ssl.engine.factory.class",
        CLASS,
        None,
        "A class that makes TLS engines.",
        update=PER_BROKER,
        effect=ACCEPTED,
        reason=NO_JAVA,
    ),
    Property("ssl.key.password", PASSWORD, None, "The password of the private key.", update=PER_BROKER, effect=PLANNED),
    Property(
        "ssl.keymanager.algorithm",
        STRING,
        "SunX509",
        "Java's algorithm for key managers.",
        update=PER_BROKER,
        effect=ACCEPTED,
        reason=NO_JAVA,
    ),
    Property(
        "ssl.keystore.certificate.chain",
        PASSWORD,
        None,
        "The certificate chain, as PEM text.",
        update=PER_BROKER,
        effect=PLANNED,
    ),
    Property("ssl.keystore.key", PASSWORD, None, "The private key, as PEM text.", update=PER_BROKER, effect=PLANNED),
    Property(
        "ssl.keystore.location",
        STRING,
        None,
        "The file with the private key and its certificates.",
        update=PER_BROKER,
        effect=PLANNED,
    ),
    Property("ssl.keystore.password", PASSWORD, None, "The password of that file.", update=PER_BROKER, effect=PLANNED),
    Property(
        "ssl.keystore.type",
        STRING,
        "JKS",
        "The format of that file; Penstock reads PEM and PKCS12.",
        update=PER_BROKER,
        effect=PLANNED,
    ),
    Property(
        "ssl.principal.mapping.rules",
        STRING,
        "DEFAULT",
        "How a certificate's subject becomes a user name.",
        effect=PLANNED,
    ),
    Property(
        "ssl.protocol",
        STRING,
        "TLSv1.3",
        "Java's name of the TLS context.",
        update=PER_BROKER,
        effect=ACCEPTED,
        reason=NO_JAVA,
    ),
    Property(
        "ssl.provider",
        STRING,
        None,
        "Java's name of the TLS library.",
        update=PER_BROKER,
        effect=ACCEPTED,
        reason=NO_JAVA,
    ),
    Property(
        "ssl.secure.random.implementation",
        STRING,
        None,
        "Java's source of randomness.",
        update=PER_BROKER,
        effect=ACCEPTED,
        reason=NO_JAVA,
    ),
    Property(
        "ssl.trustmanager.algorithm",
        STRING,
        "PKIX",
        "Java's algorithm for trust managers.",
        update=PER_BROKER,
        effect=ACCEPTED,
        reason=NO_JAVA,
    ),
    Property(
        "ssl.truststore.certificates",
        PASSWORD,
        None,
        "Certificates of trusted authorities, as PEM text.",
        update=PER_BROKER,
        effect=PLANNED,
    ),
    Property(
        "ssl.truststore.location",
        STRING,
        None,
        "The file with certificates of trusted authorities.",
        update=PER_BROKER,
        effect=PLANNED,
    ),
    Property(
        "ssl.truststore.password", PASSWORD, None, "The password of that file.", update=PER_BROKER, effect=PLANNED
    ),
    Property(
        "ssl.truststore.type",
        STRING,
        "JKS",
        "The format of that file; Penstock reads PEM and PKCS12.",
        update=PER_BROKER,
        effect=PLANNED,
    ),
)

SASL_ROWS = (
    Property(
        "sasl.enabled.mechanisms",
        LIST,
        ("GSSAPI",),
        "Mechanisms that clients may log in with.",
        update=PER_BROKER,
        effect=PLANNED,
    ),
    Property(
        "sasl.jaas.config", PASSWORD, None, "The broker's own login, in JAAS form.", update=PER_BROKER, effect=PLANNED
    ),
    Property(
        "sasl.mechanism.controller.protocol",
        STRING,
        "GSSAPI",
        "The mechanism that nodes log in to controllers with.",
        effect=PLANNED,
    ),
    Property(
        "sasl.mechanism.inter.broker.protocol",
        STRING,
        "GSSAPI",
        "The mechanism that brokers log in to each other with.",
        update=PER_BROKER,
        effect=PLANNED,
    ),
    Property(
        "sasl.server.max.receive.size", INT, 524_288, "The largest request that is read before a login.", effect=PLANNED
    ),
    *(
        Property(name, CLASS, None, doc, effect=ACCEPTED, reason=NO_JAVA)
        for name, doc in (
            ("sasl.client.callback.handler.class", "A class that answers the login's questions as a client."),
            ("sasl.login.callback.handler.class", "A class that answers the login's questions."),
            ("sasl.login.class", "A class that logs in."),
            ("sasl.server.callback.handler.class", "A class that checks logins."),
        )
    ),
)

KERBEROS_ROWS = tuple(
    Property("sasl.kerberos." + name, type, default, doc, update=PER_BROKER, effect=ACCEPTED, reason=NO_KERBEROS)
    for name, type, default, doc in (
        ("kinit.cmd", STRING, "/usr/bin/kinit", "The command that renews tickets."),
        ("min.time.before.relogin", LONG, 60_000, "The least time between two renewals."),
        ("principal.to.local.rules", LIST, ("DEFAULT",), "How a Kerberos name becomes a user name."),
        ("service.name", STRING, None, "The Kerberos name of the service."),
        ("ticket.renew.jitter", DOUBLE, 0.05, "The random share of the time until a renewal."),
        ("ticket.renew.window.factor", DOUBLE, 0.8, "The share of a ticket's life after which it is renewed."),
    )
)

LOGIN_ROWS = tuple(
    Property("sasl.login.refresh." + name, type, default, doc, update=PER_BROKER, effect=ACCEPTED, reason=_OAUTH_CLIENT)
    for name, type, default, doc in (
        ("buffer.seconds", SHORT, 300, "The least time before its end that a token is renewed."),
        ("min.period.seconds", SHORT, 60, "The least time between two renewals."),
        ("window.factor", DOUBLE, 0.8, "The share of a token's life after which it is renewed."),
        ("window.jitter", DOUBLE, 0.05, "The random share of the time until a renewal."),
    )
) + tuple(
    Property("sasl.login." + name, type, default, doc, effect=ACCEPTED, reason=_OAUTH_CLIENT)
    for name, type, default, doc in (
        ("connect.timeout.ms", INT, None, "How long connecting to the token service may take."),
        ("read.timeout.ms", INT, None, "How long the token service may take to answer."),
        ("retry.backoff.max.ms", LONG, 10_000, "The longest wait before the token service is asked again."),
        ("retry.backoff.ms", LONG, 100, "The wait before the token service is asked again."),
    )
)

OAUTH_SERVER_ROWS = tuple(
    Property("sasl.oauthbearer." + name, type, default, doc, effect=PLANNED)
    for name, type, default, doc in (
        ("clock.skew.seconds", INT, 30, "How far the clocks of broker and issuer may differ."),
        ("expected.audience", LIST, None, "Audiences of which a token must name one."),
        ("expected.issuer", STRING, None, "The issuer that a token must name."),
        ("jwks.endpoint.refresh.ms", LONG, 3_600_000, "How often the issuer's keys are fetched."),
        ("jwks.endpoint.retry.backoff.max.ms", LONG, 10_000, "The longest wait before fetching keys is tried again."),
        ("jwks.endpoint.retry.backoff.ms", LONG, 100, "The wait before fetching keys is tried again."),
        ("jwks.endpoint.url", STRING, None, "Where the issuer's keys are fetched."),
        ("scope.claim.name", STRING, "scope", "The claim that holds a token's scope."),
        ("sub.claim.name", STRING, "sub", "The claim that holds the user name."),
    )
)

_JWT_PACKAGE = "org.apache.kafka.common.security.oauthbearer."
OAUTH_CLIENT_ROWS = tuple(
    Property("sasl.oauthbearer." + name, type, default, doc, effect=ACCEPTED, reason=_OAUTH_CLIENT)
    for name, type, default, doc in (
        ("assertion.algorithm", STRING, "RS256", "The algorithm that signs the broker's own assertion."),
        ("assertion.claim.aud", STRING, None, "The audience of the broker's own assertion."),
        ("assertion.claim.exp.seconds", INT, 300, "How long the broker's own assertion is good for."),
        ("assertion.claim.iss", STRING, None, "The issuer of the broker's own assertion."),
        ("assertion.claim.jti.include", BOOLEAN, False, "Whether the broker's own assertion has an id."),
        ("assertion.claim.nbf.seconds", INT, 60, "How far back the broker's own assertion begins."),
        ("assertion.claim.sub", STRING, None, "The subject of the broker's own assertion."),
        ("assertion.file", STRING, None, "A file with the broker's own assertion."),
        ("assertion.private.key.file", STRING, None, "A file with the key that signs the broker's own assertion."),
        ("assertion.private.key.passphrase", PASSWORD, None, "The password of that key."),
        ("assertion.template.file", STRING, None, "A file with further claims of the broker's own assertion."),
        ("client.credentials.client.id", STRING, None, "The broker's own client id."),
        ("client.credentials.client.secret", PASSWORD, None, "The broker's own client secret."),
        (
            "jwt.retriever.class",
            CLASS,
            _JWT_PACKAGE + "DefaultJwtRetriever",
            "A class that gets the broker's own token.",
        ),
        ("jwt.validator.class", CLASS, _JWT_PACKAGE + "DefaultJwtValidator", "A class that checks tokens."),
        ("scope", STRING, None, "The scope of the broker's own token."),
        ("token.endpoint.url", STRING, None, "Where the broker gets its own token."),
    )
)

SECURITY_ROWS = (
    *ACCESS_ROWS,
    *SSL_ROWS,
    *SASL_ROWS,
    *KERBEROS_ROWS,
    *LOGIN_ROWS,
    *OAUTH_SERVER_ROWS,
    *OAUTH_CLIENT_ROWS,
)
