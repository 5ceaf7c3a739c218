-- verb: requeue many
-- from: error
-- to: waiting or delayed
-- what: as requeue, those of some jobs that meet some conditions
-- request
--   model, pks, first, last, within, conditions, dry, entry, unaudited
--   queue_model, delay
--   queue_name    none for the queue in which each was last
--   default_name  the queue of a job that does not say in which it was
--   priority      none for the own one of each
-- reply
--   done   {outcomes: {as in requeue.lua, or 'no queue', 'claimed', 'broken', 'refused by Redis':
--          number}, looked: at how many, seen: the last pk}

--@include requeueing
--@include several

local queue_model, due = model_of(request.queue_model), due_at(request.delay)

local function why_not(job, is_claimed)
  if job.status ~= 'e' then return 'not in error' end
  if is_claimed then return 'claimed' end
  local identifier = redis.call('HGET', job.key, 'identifier')
  if identifier and other_queued(job, identifier, request.dry) then return 'already queued' end
end

return do_each(why_not, function(job, own_name)
  local name = request.queue_name or own_name or request.default_name
  if not name then return 'no queue' end
  return (requeue_job(job, {model = queue_model, name = name, priority = request.priority, due = due}))
end)
