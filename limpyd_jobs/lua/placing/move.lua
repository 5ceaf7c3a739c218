-- verb: move
-- from: waiting or delayed
-- to: waiting or delayed
-- what: another queue, priority or place; also puts a job in a queue that stood in none
-- request
--   job_model, ident, queue_model, queue_name, delay
--   priority   none to keep it
--   prepend    '1' to put it first
--   custom     '1' to leave the list or set to the caller
--   unclaimed  '1' to refuse a running job
--   registry   see add.lua
-- reply
--   done             {status, priority, delayed_until or ''}
--   already queued   {pk of the queued job of the same identifier}
--   gone
--   claimed          it runs
--
-- A job that runs is only marked as delayed: its worker puts it in a queue when it ends.

--@include claims
--@include places
--@include registry

refuse_if_moved(request.registry)
local job = job_of(request.job_model, request.ident)
local queue_model, queue_name, due = model_of(request.queue_model), request.queue_name, due_at(request.delay)

if is_gone(job.model, job.pk) then
  return answer('gone')
end
write_classes(request.registry)

local own_priority, queued, token, status, identifier = unpack(redis.call(
  'HMGET', job.key, 'priority', 'queued', '_claim_token', 'status', 'identifier'))
local priority = request.priority or own_priority or '0'

if status == STATUSES.RUNNING or token and status ~= STATUSES.ERROR and not is_only_taken(token) then
  if request.unclaimed then return answer('claimed') end
  local delayed_until = due and due.text or now_text()
  update(job.model, job.pk, {status = STATUSES.DELAYED, delayed_until = delayed_until, priority = priority})
  return answer('done', {status = STATUSES.RUNNING, priority = priority, delayed_until = delayed_until})
end

if queued == '1' then
  if not request.custom then prepare_place(queue_model, queue_name, priority, due) end
  probe_indexes(job.model, job.pk, placed({}, priority, due))
  unplace(queue_model, queue_name, job)
else
  local other = identifier and other_queued(job, identifier)
  if other then
    return answer('already queued', {pk = other})
  end
end

local changes = {_claim_token = false, _rescues = false, _last_claim = false}
if queued ~= '1' then changes._start_within, changes._cancel_reason = false, false end
-- One that version 2, or its own hook, ended as a success may still have a cursor: it would skip its work.
if status == STATUSES.SUCCESS then changes._cursor = false end
if request.custom then
  update(job.model, job.pk, placed(changes, priority, due))
else
  place(job, queue_model, queue_name, priority, due, request.prepend, changes)
end
return answer('done', {status = changes.status, priority = priority, delayed_until = changes.delayed_until or ''})
