-- verb: delete many
-- what: deletes those of some jobs that meet some conditions, and takes them out of their queues; no job that runs
-- request
--   model, pks, first, last, within, conditions, dry, entry, unaudited
--   queue_model
--   default_name  the most likely queue of a job that names none; or none
-- reply
--   done   {outcomes: {'done', 'claimed', 'broken', 'refused by Redis': number}, looked: at how many, seen: the last pk}

--@include several

local queue_model = model_of(request.queue_model)

local function why_not(job, is_claimed)
  if is_claimed or job.status == 'r' then return 'claimed' end
end

return do_each(why_not, function(job, own_name)
  if redis.call('HGET', job.key, 'queued') == '1' then
    probe('SCARD', job_model.name .. ':collection')
    probe_indexes(job_model, job.pk, all_indexed_unset(job_model))
    take_out(queue_model, own_name or request.default_name or '', job)
  end
  delete_record(job_model, job.pk)
  return 'done'
end)
