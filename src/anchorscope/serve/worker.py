"""The worker that vLLM is told to use (`--worker-cls anchorscope.serve.worker.DetectorWorker`): its own, with a tap."""

from __future__ import annotations

from typing import Any

import vllm
from vllm.distributed.parallel_state import get_pp_group, get_tp_group
from vllm.logger import init_logger
from vllm.platforms import current_platform

from anchorscope.models.sites import sites_of
from anchorscope.serve.adapter import batch_of, bounds_of, check_runner, check_settings, check_version, new_requests
from anchorscope.serve.config import ServeConfig
from anchorscope.serve.plan import plan_of
from anchorscope.serve.tap import Tap
from anchorscope.serve.wire import Sender

if current_platform.is_cpu():
    from vllm.v1.worker.cpu_worker import CPUWorker as _Worker
else:
    from vllm.v1.worker.gpu_worker import Worker as _Worker

logger = init_logger("vllm.anchorscope")


class DetectorWorker(_Worker):  # type: ignore[misc]
    """The platform's worker, which also reads what detectors look at."""

    def load_model(self, *args: Any, **options: Any) -> None:
        """Load the model, then set the hooks: before it is compiled."""
        super().load_model(*args, **options)
        check_version(vllm.__version__)
        check_runner(self.model_runner)
        check_settings(self.vllm_config)
        config = ServeConfig.of(self.vllm_config.additional_config)
        plan = plan_of(config.load())
        model = self.model_runner.get_model()
        text = self.vllm_config.model_config.hf_config.get_text_config()
        drafts = getattr(self.vllm_config, "num_speculative_tokens", 0) or 0
        self.anchorscope_tap = Tap(
            plan,
            sites_of(text.model_type),
            model,
            self.vllm_config.scheduler_config.max_num_seqs * (1 + drafts),
            self.vllm_config.model_config.dtype,
            self.device,
            drafts,
        )
        model.register_forward_pre_hook(self._begin, with_kwargs=True)
        stages = get_pp_group()
        self.anchorscope_sender: Sender | None = None
        if get_tp_group().rank_in_group == 0:  # all tensor-parallel ranks see the same states
            self.anchorscope_sender = Sender(config.socket, plan.fingerprint, stages.rank_in_group, stages.world_size)
        logger.info("anchorscope computes %d numbers for every token", len(plan.columns))

    def _begin(self, module: Any, args: Any, options: Any) -> None:
        places = options.get("positions", args[1] if len(args) > 1 else None)
        self.anchorscope_rows = 0 if places is None else int(places.shape[-1])
        self.anchorscope_tap.begin(bounds_of(self.model_runner))

    def execute_model(self, scheduler_output: Any) -> Any:
        """One step of the engine. An error in reading costs verdicts, never the answer."""
        self.anchorscope_rows = 0
        output = super().execute_model(scheduler_output)
        try:
            tap = self.anchorscope_tap
            tap.arrived(new_requests(scheduler_output))
            tap.left(list(scheduler_output.finished_req_ids))
            if scheduler_output.total_num_scheduled_tokens:
                made = tap.step(batch_of(self.model_runner, scheduler_output, self.anchorscope_rows))
                if made is not None and self.anchorscope_sender is not None:
                    self.anchorscope_sender.put(*made)
        except Exception:
            logger.exception("anchorscope: reading this step failed, so its answers get no verdict")
        return output
