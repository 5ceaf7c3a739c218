"""Flows: jobs that begin once others have ended."""

from limpyd_jobs.flows.flow import Flow as Flow
from limpyd_jobs.flows.flow import FlowState as FlowState
from limpyd_jobs.flows.flow import NewNode as NewNode
from limpyd_jobs.flows.flow import chain as chain
from limpyd_jobs.flows.listing import FlowSummary as FlowSummary
from limpyd_jobs.flows.listing import flows_of as flows_of
from limpyd_jobs.flows.signals import SentSignal as SentSignal
from limpyd_jobs.flows.signals import SignalOutcome as SignalOutcome
from limpyd_jobs.flows.signals import asend_signal as asend_signal
from limpyd_jobs.flows.signals import asent_signals as asent_signals
from limpyd_jobs.flows.signals import atake_back_signal as atake_back_signal
from limpyd_jobs.flows.signals import send_signal as send_signal
from limpyd_jobs.flows.signals import sent_signals as sent_signals
from limpyd_jobs.flows.signals import take_back_signal as take_back_signal
from limpyd_jobs.models.following.nodes import FlowNode as FlowNode
