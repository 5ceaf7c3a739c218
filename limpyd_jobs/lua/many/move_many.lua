-- verb: move many
-- from: waiting or delayed
-- to: waiting or delayed
-- what: as move, those of some jobs that meet some conditions; no job that is claimed
-- request
--   model, pks, first, last, within, conditions, standing, dry, entry, unaudited
--   queue_model
--   queue_name    none for the queue in which each is
--   default_name  the queue of a job that names none
--   priority      none for the own one of each
--   delay         none to keep the own one of each
--   promote       '1' for delayed jobs only: their delay ends
-- reply
--   done   {outcomes: {'done', 'not queued', 'not delayed', 'waits for other jobs', 'claimed', 'no queue', 'broken',
--          'refused by Redis': number}, looked: at how many, seen: the last pk}

--@include each_found

local queue_model, given_due = model_of(request.queue_model), due_at(request.delay)

local function why_not(job, is_claimed, own_name)
  if request.promote and job.status ~= STATUSES.DELAYED then return 'not delayed' end
  if request.promote and is_parked(job.status, unpack(redis.call('HMGET', job.key, 'delayed_until', '_waits'))) then
    return 'waits for other jobs'
  end
  if is_claimed or job.status == STATUSES.RUNNING then return 'claimed' end
  if job.status ~= STATUSES.WAITING and job.status ~= STATUSES.DELAYED then return 'not queued' end
  if not (request.queue_name or own_name or request.default_name) then return 'no queue' end
end

-- When a job is due if it keeps its delay.
local function own_due(job)
  local text = not request.promote and redis.call('HGET', job.key, 'delayed_until')
  local at = text and parse_date(text)
  return at and {at = at, text = text}
end

return do_each(why_not, function(job, own_name)
  local name = request.queue_name or own_name or request.default_name
  local queued, own_priority = unpack(redis.call('HMGET', job.key, 'queued', 'priority'))
  if queued ~= '1' then return 'not queued' end
  local due = given_due or own_due(job)
  local priority = request.priority or own_priority or '0'
  prepare_place(queue_model, name, priority, due)  -- a broken key there, or here, has to be known before
  probe_indexes(job_model, job.pk, placed({}, priority, due))
  take_out(queue_model, own_name or name, job)
  place(job, queue_model, name, priority, due, false, {})
  return 'done'
end)
