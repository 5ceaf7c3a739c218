-- verb: delete many
-- what: deletes those of some jobs that meet some conditions, and their entries in queues; no job that runs, unless it
--       was canceled and its lease lapsed
-- request
--   model, pks, first, last, within, conditions, standing, dry, entry, unaudited
--   queue_model
--   default_name  the most likely queue of a job that names none; or none
-- reply
--   done   {outcomes: {'done', 'claimed', 'broken', 'refused by Redis': number}, looked: at how many, seen: the last pk}

--@include each_found

local queue_model = model_of(request.queue_model)

local function why_not(job, is_claimed)
  if job.status == STATUSES.CANCELED and has_lapsed(job_model, job.pk, job.queue_key) then return end
  if is_claimed or job.status == STATUSES.RUNNING then return 'claimed' end
end

local LIST_OF_STATUS = {[STATUSES.SUCCESS] = ':success', [STATUSES.ERROR] = ':errors'}

-- Takes a job that ended out of the list of its queue. The oldest job is the first there, and is deleted first. A job
-- of several tries may stand there several times.
local function take_out_of_ended(job)
  local list = LIST_OF_STATUS[job.status]
  if not job.queue_key then return end
  if list then redis.pcall('LREM', job.queue_key .. list, 1, job.ident) end
  if (tonumber(redis.call('HGET', job.key, 'tries')) or 0) > 1 then
    for _, each in pairs(LIST_OF_STATUS) do redis.pcall('LREM', job.queue_key .. each, 0, job.ident) end
  end
end

return do_each(why_not, function(job, own_name)
  if redis.call('HGET', job.key, 'queued') == '1' then
    probe('SCARD', job_model.name .. ':collection')
    probe_indexes(job_model, job.pk, all_indexed_unset(job_model))
    take_out(queue_model, own_name or request.default_name or '', job)
  end
  take_out_of_ended(job)
  delete_record(job_model, job.pk)
  return 'done'
end)
